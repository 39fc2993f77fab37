package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/files"
)

// units has every check that a reference may bound, with its units. The sparse product is counted in
// GFLOP/s on a host and in TFLOP/s on a GPU. Products of 48 rows are those of an emulated GPU.
var units = map[string][]string{
	"gemm_f32":             {"GFLOP/s"},
	"triad":                {"GB/s"},
	"csr_f32":              {"GFLOP/s", "TFLOP/s"},
	"file_write":           {"GB/s"},
	"file_read":            {"GB/s"},
	"copy":                 {"GB/s"},
	"gemm_f32_48":          {"TFLOP/s"},
	"gemm_bf16_48":         {"TFLOP/s"},
	"gemm_f32_8192":        {"TFLOP/s"},
	"gemm_bf16_8192":       {"TFLOP/s"},
	"host_to_gpu":          {"GB/s"},
	"gpu_to_host":          {"GB/s"},
	"gpus":                 {"GPUs"},
	"clock":                {"MHz"},
	"memory_clock":         {"MHz"},
	"pcie_width":           {"lanes"},
	"nvlinks":              {"links"},
	"mpi_latency":          {"us"},
	"mpi_bandwidth":        {"GB/s"},
	"mpi_bandwidth_c":      {"GB/s"},
	"mpi_allreduce_algbw":  {"GB/s"},
	"mpi_allreduce_busbw":  {"GB/s"},
	"nccl_allreduce_algbw": {"GB/s"},
	"nccl_allreduce_busbw": {"GB/s"},
}

// misspelt returns why no row can have the check and the unit of a bound; "" if one can.
func (b Bound) misspelt() string {
	known, found := units[b.Check]
	switch {
	case !found:
		return fmt.Sprintf("unknown check %q; the nearest is %q", b.Check, files.Nearest(b.Check, slices.Sorted(maps.Keys(units))))
	case !slices.Contains(known, b.Unit):
		return fmt.Sprintf("unit %q: %s is in %s", b.Unit, b.Check, strings.Join(known, " or "))
	}
	return ""
}
