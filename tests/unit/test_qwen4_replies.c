/* The same replies from a model whose state cannot be cut back to a prompt's end. */
#define MODEL "build/models/tiny4-fp8"
#define CLOSE_ID 299
#include "test_engine_replies.c"
