#include "daemon/base/prom.h"

#include "daemon/base/buf.h"
#include "daemon/base/version.h"

#include <inttypes.h>
#include <string.h>

void prom_observe(struct prom_histogram *h, const double *bounds, size_t n, double value)
{
    size_t i = 0;

    while (i < n && value > bounds[i])
        i++;
    h->buckets[i]++;
    h->sum += value;
    h->n++;
}

void prom_head(struct buf *to, const char *name, const char *type, const char *help)
{
    buf_printf(to, "# HELP colizig_%s %s\n# TYPE colizig_%s %s\n", name, help, name, type);
}

/* The backslash, the quote and the line break are all that the format wants escaped. */
void prom_label(struct buf *to, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            buf_put(to, "\\", 1);
        if (*value == '\n')
            buf_text(to, "\\n");
        else
            buf_put(to, value, 1);
    }
}

void prom_one(struct buf *to, const char *name, const char *type, const char *help, double value)
{
    prom_head(to, name, type, help);
    buf_printf(to, "colizig_%s %.15g\n", name, value);
}

void prom_gauge(struct buf *to, const char *name, const char *help, uint64_t value)
{
    prom_head(to, name, "gauge", help);
    buf_printf(to, "colizig_%s %" PRIu64 "\n", name, value);
}

void prom_counter(struct buf *to, const char *name, const char *help, uint64_t value)
{
    prom_head(to, name, "counter", help);
    buf_printf(to, "colizig_%s %" PRIu64 "\n", name, value);
}

void prom_labelled(struct buf *to, const char *name, const char *label, const char *value,
                   uint64_t n)
{
    buf_printf(to, "colizig_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, n);
}

void prom_buckets(struct buf *to, const char *name, const char *label, const double *bounds,
                  size_t n, const struct prom_histogram *h)
{
    size_t size = strlen(label);
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += h->buckets[i];
        buf_printf(to, "colizig_%s_bucket{%sle=\"%g\"} %" PRIu64 "\n", name, label, bounds[i], sum);
    }
    buf_printf(to, "colizig_%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, label, h->n);
    /* Without the comma. */
    int bare = size ? (int)size - 1 : 0;
    const char *open = size ? "{" : "", *close_mark = size ? "}" : "";
    buf_printf(to, "colizig_%s_sum%s%.*s%s %.15g\n", name, open, bare, label, close_mark, h->sum);
    buf_printf(to, "colizig_%s_count%s%.*s%s %" PRIu64 "\n", name, open, bare, label, close_mark,
               h->n);
}

void prom_histogram(struct buf *to, const char *name, const char *help, const double *bounds,
                    size_t n, const struct prom_histogram *h)
{
    prom_head(to, name, "histogram", help);
    prom_buckets(to, name, "", bounds, n, h);
}

void prom_service(struct buf *to, bool engine, bool serving)
{
    prom_head(to, "build_info", "gauge", "The program; always 1.");
    buf_printf(to, "colizig_build_info{version=\"%s\",commit=\"%s\"} 1\n", version_number(),
               version_commit());
    prom_gauge(to, "engine_up", "Whether the engine process answers.", engine);
    prom_gauge(to, "model_loaded", "Whether the model is loaded and served.", serving);
}
