/* A library that a program is linked with. It registers fork handlers before deepram's library is initialised. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *kept;

static void use(void)
{
    char *new = malloc(3 << 20);
    memset(new, 1, 3 << 20);
    free(kept);
    kept = new;
}

__attribute__((constructor)) static void begin(void)
{
    if (pthread_atfork(use, use, use)) abort();
}
