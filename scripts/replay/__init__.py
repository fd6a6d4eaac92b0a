"""Parts of scripts/cache-replay: traces, policies, the picture."""
