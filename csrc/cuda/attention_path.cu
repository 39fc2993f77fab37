/* Which kernels of attention a rank uses. */
#include <stdlib.h>
#include <string.h>

#include "device.cuh"

static const char *const NAMES[] = {"plain", "tiles", "hopper"}; /* by path */

const char *attention_name(enum attention_path path) { return NAMES[path]; }

/* Sets can_run if Hopper's kernels can run here, and is_default if a rank uses them unless
 * DYNMO_CUDA_ATTENTION says otherwise. On a GPU both need a library with these kernels and a device of
 * compute capability 9.0. The emulator can run them, but only if the variable asks for them. */
static int32_t find_hopper(bool *can_run, bool *is_default) {
	*can_run = *is_default = false;
#ifdef DYNMO_EMULATE
	*can_run = true;
#elif defined(DYNMO_HOPPER)
	int device, major = 0, minor = 0;
	cudaError_t status = cudaGetDevice(&device);
	if (status == cudaSuccess) status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
	if (status == cudaSuccess) status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
	if (status != cudaSuccess) return static_cast<int32_t>(status);
	*can_run = *is_default = major == 9 && minor == 0;
#endif
	return 0;
}

int32_t attention_choose(enum attention_path *path) {
	bool can_run, is_default;
	int32_t status = find_hopper(&can_run, &is_default);
	if (status != 0) return status;
	*path = is_default ? ATTENTION_HOPPER : ATTENTION_TILES;
	const char *wanted = getenv("DYNMO_CUDA_ATTENTION");
	if (!wanted || !*wanted) return 0;
	for (int i = ATTENTION_PLAIN; i <= (can_run ? ATTENTION_HOPPER : ATTENTION_TILES); i++)
		if (!strcmp(wanted, NAMES[i])) {
			*path = static_cast<enum attention_path>(i);
			return 0;
		}
	return DYNMO_CUDA_PATH;
}
