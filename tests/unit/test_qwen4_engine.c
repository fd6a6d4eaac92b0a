/* All that an engine promises, on a model with recurrent states, sparse attention and n-gram tables. */
#define MODEL "build/models/tiny4-fp8"
#include "test_engine.c"
