/* The vector kernels for AVX-512 F, BW, VL and DQ. */
#include "kernels/lanes_avx512.h"

#include "kernels/tables.h"
#include "kernels/vector_rows.h"

#include "kernels/vector_attend.h"
#include "kernels/vector_matmul.h"

const struct kernels kernels_avx512 = {
    .class = KERNELS_AVX512,
    .name = "avx512",
    .matmul = matmul,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .silu_mul = silu_mul,
    .add = add,
    .add_scaled = add_scaled,
    .attend = attend,
    .store_row = store_row,
};
