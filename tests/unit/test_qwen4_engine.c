/* All that an engine promises, on a model with recurrent states, sparse attention and n-gram tables. */
#define MODEL "build/models/tiny4-fp8"
#ifdef __SANITIZE_ADDRESS__
#define ONLY "a_lone_cancelled_request*" /* instrumented, the others would take minutes */
#endif
#include "test_engine.c"
