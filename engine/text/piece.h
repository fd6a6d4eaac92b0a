/* piece: where the bytes of a token lie in the vocabulary. */
#ifndef TEXT_PIECE_H
#define TEXT_PIECE_H

#include <stdint.h>

struct piece {
    uint32_t at;          /* in the vocabulary's bytes */
    uint32_t size : 31;   /* 0: no such token */
    uint32_t special : 1; /* added, and marked so */
};

#endif
