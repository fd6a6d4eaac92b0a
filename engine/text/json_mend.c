#include "text/json_mend.h"

void json_mend_done(struct json_mend *m)
{
    bytes_done(&m->stack);
    bytes_done(&m->gap);
}
