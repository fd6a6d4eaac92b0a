#include "daemon/base/version.h"

#ifndef CZ_VERSION
#define CZ_VERSION "unknown"
#endif
#ifndef CZ_COMMIT
#define CZ_COMMIT "unknown"
#endif

const char *version_number(void)
{
    return CZ_VERSION;
}

const char *version_commit(void)
{
    return CZ_COMMIT;
}
