/* The same replies from a model whose state cannot be cut back to a prompt's end. */
#define MODEL "build/models/tiny4-fp8"
#define CLOSE_ID 299
#ifdef __SANITIZE_ADDRESS__
#define ONLY "choices_are_requests*" /* instrumented, the others would take minutes */
#endif
#include "test_engine_replies.c"
