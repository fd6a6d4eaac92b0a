/* The vector kernels for AVX2, FMA and F16C. */
#include "kernels/lanes_avx2.h"

#include "kernels/tables.h"
#include "kernels/vector_rows.h"

#include "kernels/vector_attend.h"
#include "kernels/vector_matmul.h"

const struct kernels kernels_avx2 = {
    .class = KERNELS_AVX2,
    .name = "avx2",
    .matmul = matmul,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .silu_mul = silu_mul,
    .add = add,
    .add_scaled = add_scaled,
    .attend = attend,
    .store_row = store_row,
};
