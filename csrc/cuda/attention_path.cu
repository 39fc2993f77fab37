/* Which kernels of attention a rank takes. */
#include <stdlib.h>
#include <string.h>

#include "device.cuh"

static const char *const NAMES[] = {"plain", "tiles", "hopper"}; /* by path */

const char *attention_name(enum attention_path path) { return NAMES[path]; }

/* Whether the library has Hopper's kernels, and the current device is one. The emulator,
 * which is none, runs them where it is told to. */
static int32_t find_hopper(bool *there, bool *best) {
	*there = *best = false;
#ifdef DYNMO_EMULATE
	*there = true;
#elif defined(DYNMO_HOPPER)
	int device, major = 0, minor = 0;
	cudaError_t status = cudaGetDevice(&device);
	if (status == cudaSuccess) status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
	if (status == cudaSuccess) status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
	if (status != cudaSuccess) return static_cast<int32_t>(status);
	*there = *best = major == 9 && minor == 0;
#endif
	return 0;
}

int32_t attention_choose(enum attention_path *path) {
	bool there, best;
	int32_t status = find_hopper(&there, &best);
	if (status != 0) return status;
	*path = best ? ATTENTION_HOPPER : ATTENTION_TILES;
	const char *wanted = getenv("DYNMO_CUDA_ATTENTION");
	if (!wanted || !*wanted) return 0;
	for (int i = ATTENTION_PLAIN; i <= (there ? ATTENTION_HOPPER : ATTENTION_TILES); i++)
		if (!strcmp(wanted, NAMES[i])) {
			*path = static_cast<enum attention_path>(i);
			return 0;
		}
	return DYNMO_CUDA_PATH;
}
