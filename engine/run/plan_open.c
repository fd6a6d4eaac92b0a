/* The front door's plan: options, headers of a checkpoint, this machine, one answer. */
#include "colizig.h"

#include "run/headers.h"
#include "run/probe.h"
#include "store/plan.h"
#include "util/err.h"

void cz_options_init(struct cz_options *o)
{
    *o = (struct cz_options){
        .direct_io = true,
        .sequences = 4,
        .queue = 32,
        .token_gap_ms = 2000,
        .stall_timeout_ms = 300 * 1000,
    };
}

int cz_plan(struct cz_plan *out, const struct cz_options *opt, bool probe, struct err *err)
{
    struct model_headers h;
    struct cz_plan p = { 0 };
    int rc;

    *out = p;
    if (headers_open_to_plan(&h, opt->model_dir, err) < 0)
        return -1;
    rc = plan_for(&p, &h, opt, err);
    if (rc == 0 && probe) {
        /* An estimate is a courtesy: what cannot be probed stays 0, and the plan stands. */
        if (!h.shards || probe_disk(&p.disk_gbps, h.shards, opt->direct_io, NULL) < 0)
            p.disk_gbps = 0.0;
        if (probe_memory(&p.memory_gbps, p.threads, p.available / 8, NULL) < 0)
            p.memory_gbps = 0.0;
        plan_estimate(&p);
    }
    headers_close(&h);
    *out = p;
    return rc;
}
