/* kv_pool: keys and values of all sequences, in pages.
 *
 * One page holds KV_PAGE_TOKENS tokens of one sequence for all layers:
 *   [layer][k, v][kv_head][token][head_dim], F32 or BF16,
 * and, where an indexer picks what is attended to (blocks/qsa.h), behind that
 *   [layer][token][index_dim] its keys, [layer][block][index_dim] those of full blocks.
 * Layers are those that attend, counted from 0.
 * Pages are counted, so several sequences may share one (a prefix). The region is
 * sized by the plan and never grows; an empty pool is an answer, not an error.
 * Engine thread. */
#ifndef STORE_KV_POOL_H
#define STORE_KV_POOL_H

#include "formats/dtype.h"
#include "store/shape.h"

#include <stddef.h>
#include <stdint.h>

enum { KV_PAGE_TOKENS = 64 };

struct err;
struct kv_pool;

/* Bytes of keys and values, of indexer keys and of block keys in a page. */
uint64_t kv_pool_page_size(const struct model_shape *shape, enum dtype dtype);
uint64_t kv_pool_index_size(const struct model_shape *shape, enum dtype dtype);
uint64_t kv_pool_block_size(const struct model_shape *shape, enum dtype dtype);
int kv_pool_open(struct kv_pool **out, const struct model_shape *shape, enum dtype dtype,
                 uint32_t n_pages, struct err *err);
void kv_pool_close(struct kv_pool *p); /* NULL is fine */

/* A page with count 1, or -1 when none is free. */
int64_t kv_pool_take(struct kv_pool *p);
void kv_pool_share(struct kv_pool *p, uint32_t page); /* count + 1 */
void kv_pool_give(struct kv_pool *p, uint32_t page);  /* count - 1; at 0 it is free */
uint32_t kv_pool_count(const struct kv_pool *p, uint32_t page);
/* As share and give, by who keeps pages for later: at most one does. A page with nobody else is
 * idle. */
void kv_pool_keep(struct kv_pool *p, uint32_t page);
void kv_pool_unkeep(struct kv_pool *p, uint32_t page);
uint32_t kv_pool_idle(const struct kv_pool *p);
void kv_pool_copy(struct kv_pool *p, uint32_t to, uint32_t from); /* what is in the page */
uint32_t kv_pool_peak(const struct kv_pool *p); /* most pages ever in use at once, idle ones not */
char *kv_pool_page(const struct kv_pool *p, uint32_t page);
uint32_t kv_pool_free(const struct kv_pool *p);
uint32_t kv_pool_total(const struct kv_pool *p);

/* Byte offset inside a page of the keys (or values) of a layer and KV head:
 * [KV_PAGE_TOKENS, head_dim]. */
size_t kv_pool_k_offset(const struct kv_pool *p, uint32_t layer, uint32_t kv_head);
size_t kv_pool_v_offset(const struct kv_pool *p, uint32_t layer, uint32_t kv_head);
/* Byte offset of a layer's indexer keys [KV_PAGE_TOKENS, index_dim], and of its block keys. */
size_t kv_pool_index_offset(const struct kv_pool *p, uint32_t layer);
size_t kv_pool_block_offset(const struct kv_pool *p, uint32_t layer);
enum dtype kv_pool_dtype(const struct kv_pool *p);

#endif
