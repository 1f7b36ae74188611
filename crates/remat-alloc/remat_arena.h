/*
 * The C ABI of Remat's allocators (libremat_alloc.so).
 *
 * CPU: preload the library. REMAT_ARENA=BYTES[,ALIGNMENT] opens the arena of the process when it starts;
 * a value that cannot be met ends the process with code 2 and a line on stderr. remat_arena_open does the same later.
 *
 * CUDA: give torch.cuda.memory.CUDAPluggableAllocator the names remat_cuda_malloc and remat_cuda_free.
 * REMAT_CUDA_ARENA=BYTES[,ALIGNMENT] is the size of each device's arena; remat_cuda_open says it for one device.
 *
 * Any thread may call every function at any time, but signal handlers may not. Functions that return an int return 0 or
 * a number of <errno.h>. All sizes are bytes.
 */
#ifndef REMAT_ARENA_H
#define REMAT_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes room for a block of so many bytes by freeing others, and returns whether to try again. The thread that
 * allocates calls it, without any lock held; several threads may call it at once. It may allocate and free; an
 * allocation of the same thread that finds no room meanwhile is refused. If it returns true and no block was freed
 * since it last did, it is not asked again. It must not throw.
 */
typedef bool (*remat_make_room)(uint64_t bytes, void *context);

/* Counts of an arena since it was opened. */
struct remat_arena_statistics {
    uint64_t capacity;     /* whole units of the alignment */
    uint64_t in_use;       /* of blocks, rounded to the alignment */
    uint64_t high_water;   /* most bytes in use at a time since the arena was opened or the peak restarted */
    uint64_t free_bytes;   /* capacity - in_use */
    uint64_t largest_free; /* the largest block that could be allocated */
    uint64_t blocks;       /* live ones */
    uint64_t allocations;  /* that got a block */
    uint64_t frees;
    uint64_t exhaustions;  /* times that no free block was large enough, retries included */
    uint64_t refusals;     /* allocations that got no block */
    uint64_t spills;       /* allocations that the system served for want of room, for callers that bear no refusal */
    uint64_t wrong_frees;  /* blocks freed twice, addresses at which no block begins */
    double fragmentation_mean; /* free_bytes / capacity at exhaustions (Coop, section 4.1), 0 without any */
    double fragmentation_max;
};

/* ---- CPU: the arena of this process ---- */

/*
 * Opens an arena of so many bytes; alignment 0 is the usual one, 64. An open arena of the same size serves again.
 * Blocks of an arena of another size stay valid until they are freed, and count no more.
 * EINVAL: bytes < alignment, bytes >= 2^63 or an alignment that is no power of two. ENOMEM: no such stretch of
 * addresses.
 * ENOTSUP: the library is not preloaded.
 */
int remat_arena_open(uint64_t bytes, uint64_t alignment);

/* Leaves new blocks to the system from here on; blocks in the arena stay valid until they are freed. */
void remat_arena_close(void);

/* Registers the function that makes room; NULL for none. The one before may still be running in another thread. */
void remat_arena_on_exhausted(remat_make_room make_room, void *context);

/* Whether a pointer lies in the arena. Takes no lock. */
bool remat_arena_owns(const void *block);

/* Bytes of the block that begins there, rounded to the alignment; 0 if no block begins there. */
uint64_t remat_arena_size_of(const void *block);

/* The first address of the arena; NULL before one was opened. */
const void *remat_arena_base(void);

enum remat_arena_end { REMAT_ARENA_LOW = 0, REMAT_ARENA_HIGH = 1 };
enum remat_arena_fit { REMAT_ARENA_FIRST = 0, REMAT_ARENA_BEST = 1 };

/*
 * Places the calling thread's next blocks, on CPU and devices, at an end of the arena, in the nearest (FIRST) or the
 * smallest (BEST) free block that holds them. At first: LOW, BEST. On the CPU, blocks below 16 KiB are always placed
 * HIGH, FIRST. EINVAL: another number.
 */
int remat_arena_place(int end, int fit);

/*
 * Keeps the block at an address for the calling thread's next allocation of so many bytes, rounded to the alignment. Of
 * several such blocks the allocation gets the one kept first; if it is freed, the block is kept again. Blocks below 1024
 * bytes are the system's and need none.
 * EBUSY: not all of the block is free. EINVAL: no such place. ENOENT: no arena was opened.
 */
int remat_arena_expect(uint64_t address, uint64_t bytes);

/* The same for the allocation of so many bytes that comes after `passes` others of that size. */
int remat_arena_expect_after(uint64_t address, uint64_t bytes, uint32_t passes);

/*
 * How many allocations of so many bytes, rounded, the calling thread made before the latest one at an address, since it
 * expected blocks; -1 - n where none of the n that it made is there.
 */
int64_t remat_arena_passes(uint64_t address, uint64_t bytes);

/* Gives back the blocks that the calling thread expected and did not allocate; returns their number. */
size_t remat_arena_expect_no_more(void);

/*
 * Leaves blocks below so many bytes to the system unless they are expected. The limit is 1024 at first, and at least. A
 * planned arena has no room for strangers: libraries keep small blocks for as long as the program runs. Returns the
 * limit before.
 */
uint64_t remat_arena_small_block_limit(uint64_t bytes);

/*
 * Says whether the system serves the calling thread's allocations that find no room, which count as spills. For work
 * that must not be given up halfway. Returns the answer before.
 */
bool remat_arena_spill(bool spill);

/* ENOENT: no arena was opened. */
int remat_arena_read(struct remat_arena_statistics *out);

/* A block, or a free stretch between two. */
struct remat_arena_block {
    uint64_t address;
    uint64_t bytes;
    bool taken;
};

/*
 * Copies the arena's blocks, which lie side by side, in address order and as many as there are places for. Returns the
 * number of all blocks, 0 if no arena was opened. The copy is of one moment; out may be NULL if places is 0.
 */
size_t remat_arena_blocks(struct remat_arena_block *out, size_t places);

/* Starts high_water anew from in_use. */
void remat_arena_restart_peak(void);

/*
 * The bytes side by side that hold all blocks which were allocated and freed since remat_arena_restart_peak was called,
 * were they alone. That is more than they take at any time where a large block does not fit into the gap that a small
 * one left. 0 if this was asked already, or after more than 1,024 allocations and frees.
 */
uint64_t remat_arena_span_of_temporaries(void);

/*
 * Checks all invariants of the pool, in time proportional to the number of blocks. EFAULT: one does not hold, which
 * message names, cut to length and ended by a zero; message may be NULL if length is 0. ENOENT: no arena was opened.
 */
int remat_arena_check(char *message, size_t length);

/* ---- CUDA: an arena a device, from one cudaMalloc ---- */

/* The runtime's functions. Void pointers are cudaStream_t and cudaEvent_t, returned ints are cudaError_t. */
struct remat_cuda_functions {
    int (*get_device)(int *device);
    int (*set_device)(int device);
    int (*malloc)(void **memory, size_t bytes);
    int (*free)(void *memory);
    int (*event_create)(void **event, unsigned int flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*stream_wait_event)(void *stream, void *event, unsigned int flags);
};

/* Replaces the CUDA runtime for arenas that are opened from here on, in tests. */
void remat_cuda_substitute(const struct remat_cuda_functions *functions);

/*
 * Opens the arena of a device; alignment 0 is the usual one, 512. An arena without blocks is replaced.
 * EINVAL as above, or no such device; ENOMEM: the device has not as many bytes; EBUSY: the open arena has blocks;
 * ENOTSUP: no CUDA runtime is installed. A line on stderr says so too.
 */
int remat_cuda_open(int device, uint64_t bytes, uint64_t alignment);

/*
 * Takes a block for use on a stream; NULL for 0 bytes. Where there is no room, the first throws std::runtime_error
 * (torch takes NULL for a block) and the second returns NULL.
 */
void *remat_cuda_malloc(ssize_t bytes, int device, void *stream);
void *remat_cuda_try_malloc(ssize_t bytes, int device, void *stream);

/*
 * Gives back a block whose last use on its own stream is enqueued. Other streams use it again only after an event that
 * is recorded now.
 */
void remat_cuda_free(void *block, ssize_t bytes, int device, void *stream);

/* Notes that a further stream uses a block: it is used again only after the work enqueued there when it is freed. */
void remat_cuda_record_stream(void *block, void *stream);

/* As for the arena of the CPU. */
void remat_cuda_on_exhausted(remat_make_room make_room, void *context);
int remat_cuda_read(int device, struct remat_arena_statistics *out);
void remat_cuda_restart_peak(int device);
int remat_cuda_check(int device, char *message, size_t length);

#ifdef __cplusplus
}
#endif
#endif
