/* tokenizer_tables: what an open tokenizer consists of. For tokenizer.c and encoding.c. */
#ifndef TEXT_TOKENIZER_TABLES_H
#define TEXT_TOKENIZER_TABLES_H

#include "text/least.h"
#include "text/vocab.h"

#include <stdbool.h>

struct pretokenizer;

struct tokenizer {
    struct vocab vocab;
    struct least least;
    struct pretokenizer *pre; /* owned */
    bool nfc;
    uint64_t fingerprint;
};

#endif
