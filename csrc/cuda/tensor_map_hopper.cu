/* Maps by which the copy engine finds boxes of a matrix: made on the host by the driver,
 * and passed to kernels by value. Making one asks nothing of the device, and a captured
 * layer makes it once: none is kept. */
#include <dlfcn.h>

#include "hopper.cuh"

#ifdef DYNMO_EMULATE

int32_t tensor_map_of(tensor_map *map, const bf16 *matrix, int64_t rows, int64_t columns, int box_rows) {
	*map = {matrix, rows, columns, box_rows};
	return 0;
}

#else

int32_t tensor_map_of(tensor_map *map, const bf16 *matrix, int64_t rows, int64_t columns, int box_rows) {
	static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	static auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
		driver ? dlsym(driver, "cuTensorMapEncodeTiled") : nullptr);
	if (!encode) return DYNMO_CUDA_ABSENT;
	cuuint64_t size[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
	cuuint64_t stride[1] = {size[0] * sizeof(bf16)};
	cuuint32_t box[2] = {PANEL, static_cast<cuuint32_t>(box_rows)}, step[2] = {1, 1};
	return static_cast<int32_t>(encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16 *>(matrix), size,
		stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

#endif
