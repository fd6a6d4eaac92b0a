#include "blocks/step.h"

#include <string.h>

void step_drop_rows(struct step *step, float *const *arrays, const size_t *widths, size_t n_arrays)
{
    uint32_t kept = 0;

    for (uint32_t r = 0; r < step->n_rows; r++) {
        if (step->gone[step->rows[r].seq])
            continue;
        if (kept != r) {
            step->rows[kept] = step->rows[r];
            for (size_t i = 0; i < n_arrays; i++)
                memcpy(arrays[i] + kept * widths[i], arrays[i] + r * widths[i],
                       widths[i] * sizeof **arrays);
        }
        kept++;
    }
    step->n_rows = kept;
}
