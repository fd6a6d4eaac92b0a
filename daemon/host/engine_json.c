#include "daemon/host/engine_json.h"

#include <stdbool.h>

/* jansson refuses NULL objects and values itself, so a key is lost only without memory. */
static void put(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void put_real(json_t *o, const char *key, double x)
{
    json_object_set_new(o, key, json_real(x));
}

static void put_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

static void put_bool(json_t *o, const char *key, bool yes)
{
    json_object_set_new(o, key, json_boolean(yes));
}

static void put_phases(json_t *o, const char *key, const uint64_t ns[CZ_N_PHASES])
{
    json_t *phases = json_object();

    for (uint32_t i = 0; i < CZ_N_PHASES; i++)
        put(phases, cz_phase_name((enum cz_phase)i), ns[i]);
    json_object_set_new(o, key, phases);
}

json_t *engine_json_stats(const struct cz_stats *s)
{
    json_t *o = json_object();

    put(o, "running", s->running);
    put(o, "waiting", s->waiting);
    put(o, "prefilling", s->prefilling);
    put(o, "n_submitted", s->n_submitted);
    put(o, "n_finished", s->n_finished);
    put(o, "n_failed", s->n_failed);
    put(o, "n_cancelled", s->n_cancelled);
    put(o, "n_preempted", s->n_preempted);
    put(o, "n_displaced", s->n_displaced);
    put(o, "prompt_tokens", s->prompt_tokens);
    put(o, "generated_tokens", s->generated_tokens);
    put(o, "layers", s->layers);
    put(o, "steps", s->steps);
    put(o, "decode_steps", s->decode_steps);
    put(o, "prefill_steps", s->prefill_steps);
    put(o, "mixed_steps", s->mixed_steps);
    put(o, "put_downs", s->put_downs);
    put(o, "points_kept", s->points_kept);
    put(o, "points_used", s->points_used);
    put(o, "prefix_lookups", s->prefix_lookups);
    put(o, "prefix_tokens", s->prefix_tokens);
    put(o, "prefix_evictions", s->prefix_evictions);
    put(o, "prefix_pages", s->prefix_pages);
    put(o, "prefix_states", s->prefix_states);
    put(o, "pool_jobs", s->pool_jobs);
    put(o, "multi_row_products", s->multi_row_products);
    put(o, "expert_orders", s->expert_orders);
    put(o, "expert_hits", s->expert_hits);
    put(o, "expert_misses", s->expert_misses);
    put(o, "expert_evictions", s->expert_evictions);
    put(o, "expert_read_bytes", s->expert_read_bytes);
    put(o, "expert_wait_ns", s->expert_wait_ns);
    put(o, "expert_retries", s->expert_retries);
    put(o, "expert_slots", s->expert_slots);
    put(o, "expert_slots_used", s->expert_slots_used);
    put(o, "expert_slots_planned", s->expert_slots_planned);
    put_text(o, "pressure", cz_pressure_name(s->pressure));
    put(o, "n_pressure", s->n_pressure);
    put(o, "slots_given_back", s->slots_given_back);
    put(o, "slots_taken_back", s->slots_taken_back);
    put(o, "own_bytes", s->own_bytes);
    put(o, "room_bytes", s->room_bytes);
    put(o, "kv_pages", s->kv_pages);
    put(o, "kv_pages_used", s->kv_pages_used);
    put(o, "kv_pages_peak", s->kv_pages_peak);
    put(o, "prefill_ns", s->prefill_ns);
    put(o, "decode_ns", s->decode_ns);
    put_phases(o, "prefill_phase_ns", s->prefill_phase_ns);
    put_phases(o, "decode_phase_ns", s->decode_phase_ns);
    put(o, "threads", s->threads);
    put_text(o, "kernels", s->kernels);
    put_text(o, "io", s->io);
    put_bool(o, "direct_io", s->direct_io);
    put_bool(o, "files_changed", s->files_changed);
    return o;
}

json_t *engine_json_plan(const struct cz_plan *p)
{
    json_t *o = json_object(), *lines = json_array();

    for (uint32_t i = 0; i < p->n_lines && i < CZ_PLAN_LINES; i++) {
        json_t *line = json_object();
        put_text(line, "name", p->lines[i].name);
        put_text(line, "detail", p->lines[i].detail);
        put(line, "bytes", p->lines[i].bytes);
        json_array_append_new(lines, line);
    }
    json_object_set_new(o, "lines", lines);
    put(o, "ram", p->ram);
    put_text(o, "ram_source", p->ram_source);
    put(o, "total", p->total);
    put(o, "minimum", p->minimum);
    put(o, "available", p->available);
    put(o, "threads", p->threads);
    put(o, "context", p->context);
    put(o, "sequences", p->sequences);
    put(o, "prefill_rows", p->prefill_rows);
    put(o, "expert_slots", p->expert_slots);
    put(o, "min_slots", p->min_slots);
    put(o, "n_experts_total", p->n_experts_total);
    put_text(o, "dense", p->dense == CZ_DENSE_FP8 ? "fp8" : "bf16");
    put(o, "resident_bytes", p->resident_bytes);
    put(o, "other_resident_bytes", p->other_resident_bytes);
    put(o, "token_resident_bytes", p->token_resident_bytes);
    put(o, "token_expert_bytes", p->token_expert_bytes);
    put(o, "kv_pages", p->kv_pages);
    put(o, "kv_page_tokens", p->kv_page_tokens);
    put(o, "kv_bytes", p->kv_bytes);
    put(o, "slot_size", p->slot_size);
    put(o, "slots_bytes", p->slots_bytes);
    put(o, "reads_in_flight", p->reads_in_flight);
    put(o, "logit_rows", p->logit_rows);
    put_real(o, "estimated_disk_gbps", p->disk_gbps);
    put_real(o, "estimated_memory_gbps", p->memory_gbps);
    put_real(o, "estimated_tokens_per_second", p->tokens_per_second);
    return o;
}

json_t *engine_json_adjusted(const struct cz_plan *p, uint32_t queue)
{
    json_t *o = json_object();

    put(o, "ram", p->ram);
    put(o, "total", p->total);
    put(o, "minimum", p->minimum);
    put(o, "expert_slots", p->expert_slots);
    put(o, "min_slots", p->min_slots);
    put(o, "slots_bytes", p->slots_bytes);
    put(o, "queue", queue);
    return o;
}

json_t *engine_json_info(const struct cz_model_info *m)
{
    json_t *o = json_object(), *warnings = json_array();

    put_text(o, "model_type", m->model_type);
    put_text(o, "architecture", m->architecture);
    put_bool(o, "derived", m->derived);
    put(o, "n_shards", m->n_shards);
    put(o, "n_tensors", m->n_tensors);
    put(o, "vocab", m->vocab);
    put(o, "hidden", m->hidden);
    put(o, "n_layers", m->n_layers);
    put(o, "n_moe_layers", m->n_moe_layers);
    put(o, "n_heads", m->n_heads);
    put(o, "n_kv_heads", m->n_kv_heads);
    put(o, "head_dim", m->head_dim);
    put(o, "n_experts", m->n_experts);
    put(o, "experts_per_token", m->experts_per_token);
    put(o, "expert_width", m->expert_width);
    put(o, "dense_width", m->dense_width);
    put(o, "max_positions", m->max_positions);
    put_bool(o, "tied_embeddings", m->tied_embeddings);
    put_bool(o, "fp8", m->fp8);
    put(o, "n_params", m->n_params);
    put(o, "embedding_bytes", m->embedding);
    put(o, "head_bytes", m->head);
    put(o, "norms_bytes", m->norms);
    put(o, "attention_bytes", m->attention);
    put(o, "router_bytes", m->router);
    put(o, "dense_mlp_bytes", m->dense_mlp);
    put(o, "experts_bytes", m->experts);
    put(o, "expert_scales_bytes", m->expert_scales);
    put(o, "expert_bytes", m->expert_bytes);
    put(o, "total_bytes", m->total);
    put(o, "kv_bytes_per_token_bf16", m->kv_bytes_per_token_bf16);
    for (uint32_t i = 0; i < m->n_warnings && i < 8; i++)
        json_array_append_new(warnings, json_string(m->warnings[i]));
    json_object_set_new(o, "warnings", warnings);
    return o;
}

json_t *engine_json_parts(const struct cz_model_parts *m)
{
    json_t *o = json_object();

    put(o, "dense_bytes", m->dense);
    put(o, "linear_attention_bytes", m->linear_attention);
    put(o, "residual_mixing_bytes", m->residual_mixing);
    put(o, "ngram_projections_bytes", m->ngram_projections);
    put(o, "shared_experts_bytes", m->shared_experts);
    put(o, "routed_bytes", m->routed);
    put(o, "table_bytes", m->table);
    put(o, "constants_bytes", m->constants);
    put(o, "mtp_bytes", m->mtp);
    put(o, "vision_bytes", m->vision);
    put(o, "n_dense_tensors", m->n_dense_tensors);
    put(o, "n_routed_tensors", m->n_routed_tensors);
    put(o, "n_table_tensors", m->n_table_tensors);
    put(o, "n_mtp_tensors", m->n_mtp_tensors);
    put(o, "n_vision_tensors", m->n_vision_tensors);
    put(o, "table_rows", m->table_rows);
    put(o, "table_rows_per_token", m->table_rows_per_token);
    put(o, "fixed_state_bytes", m->fixed_state);
    put(o, "kv_values_per_token", m->kv_values_per_token);
    put(o, "index_values_per_token", m->index_values_per_token);
    put(o, "state_bytes_per_token_f32",
        sizeof(float) * (m->kv_values_per_token + m->index_values_per_token));
    put(o, "block_values", m->block_values);
    put(o, "block_tokens", m->block_tokens);
    return o;
}

json_t *engine_json_experts(const struct cz_expert_layer *layers, uint32_t n_layers,
                            const struct cz_expert_heat *hottest, uint32_t n_hottest)
{
    json_t *o = json_object(), *of_layers = json_array(), *hot = json_array();

    for (uint32_t i = 0; i < n_layers; i++) {
        json_t *one = json_object();
        put(one, "layer", layers[i].layer);
        put(one, "n_experts", layers[i].n_experts);
        put(one, "n_resident", layers[i].n_resident);
        put(one, "hits", layers[i].hits);
        put(one, "misses", layers[i].misses);
        put(one, "evictions", layers[i].evictions);
        json_array_append_new(of_layers, one);
    }
    for (uint32_t i = 0; i < n_hottest; i++) {
        json_t *one = json_object();
        put(one, "layer", hottest[i].layer);
        put(one, "expert", hottest[i].expert);
        put_real(one, "heat", (double)hottest[i].heat);
        put_bool(one, "resident", hottest[i].resident);
        json_array_append_new(hot, one);
    }
    json_object_set_new(o, "layers", of_layers);
    json_object_set_new(o, "hottest", hot);
    return o;
}
