/* The same of a model whose state cannot be cut back. */
#define MODEL "build/models/tiny4-fp8"
#define CUTS 0
#include "test_engine_prefix.c"
