/* fsync and fdatasync fail with EIO as soon as the file named by TIDELOG_TEST_FSYNC_FAILS exists.
   Preloaded into one process by a test; no part of the product knows it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int is_broken(void)
{
    const char *trigger = getenv("TIDELOG_TEST_FSYNC_FAILS");
    return trigger != NULL && access(trigger, F_OK) == 0;
}

static int passed_on(const char *name, int descriptor)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (is_broken()) {
        errno = EIO;
        return -1;
    }
    return real(descriptor);
}

int fsync(int descriptor)
{
    return passed_on("fsync", descriptor);
}

int fdatasync(int descriptor)
{
    return passed_on("fdatasync", descriptor);
}
