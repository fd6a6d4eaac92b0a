/* The vector kernels for AVX2, FMA and F16C. */
#include "kernels/lanes_avx2.h"

#include "kernels/tables.h"
#include "kernels/vector_rows.h"

#include "kernels/vector_attend.h"
#include "kernels/vector_delta.h"
#include "kernels/vector_matmul.h"

const struct kernels kernels_avx2 = {
    .class = KERNELS_AVX2,
    .name = "avx2",
    .matmul = matmul,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .silu_mul = silu_mul,
    .silu = silu,
    .sigmoid_mul = sigmoid_mul,
    .l2norm = l2norm,
    .conv_silu = conv_silu,
    .delta_step = delta_step,
    .add = add,
    .add_scaled = add_scaled,
    .attend = attend,
    .store_row = store_row,
};
