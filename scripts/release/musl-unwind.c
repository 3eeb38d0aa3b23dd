/* gcc's unwinder, as Debian builds it, asks the C library for the tables of a code address through _dl_find_object, which
 * glibc has since 2.35 and musl has not. The same answer, found by walking the loaded objects. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stddef.h>

struct object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *tables;
    unsigned long long reserved[7];
};

struct search {
    char *address;
    struct object *object;
    int found;
};

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    char *tables = NULL;
    int inside = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        char *start = (char *)info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_GNU_EH_FRAME)
            tables = start;
        if (part->p_type == PT_LOAD && search->address >= start && search->address < start + part->p_memsz) {
            inside = 1;
            search->object->start = start;
            search->object->end = start + part->p_memsz;
        }
    }
    if (!inside || !tables)
        return 0;
    search->object->flags = 0;
    search->object->map = NULL;
    search->object->tables = tables;
    search->found = 1;
    return 1;
}

int _dl_find_object(void *address, struct object *object) {
    struct search search = { address, object, 0 };
    dl_iterate_phdr(look, &search);
    return search.found ? 0 : -1;
}

/* The unwinder refers to these weakly: in a static program they would be left out, and it would take none of its locks. */
void *const unwinder_locks[] __attribute__((used)) = {
    (void *)pthread_once,        (void *)pthread_key_create,    (void *)pthread_getspecific,
    (void *)pthread_setspecific, (void *)pthread_mutex_lock,    (void *)pthread_mutex_unlock,
};
