/* tables: the kernel tables that kernels_choose chooses from. For this folder only. */
#ifndef KERNELS_TABLES_H
#define KERNELS_TABLES_H

#include "kernels/kernels.h"

extern const struct kernels kernels_scalar;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#endif

/* Limits that kernels.h promises for attend. */
enum { ATTEND_HEAD_DIM_MAX = 256, ATTEND_HEADS_MAX = 32 };

#endif
