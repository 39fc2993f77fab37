package kernel

import (
	"fmt"
	"strings"
)

// Advice returns a text for the user on how to make products faster on a backend with this Identity,
// "" if no advice is known. On a CPU newer than itself OpenBLAS uses its kernels for Prescott, which
// have neither AVX nor FMA. OpenBLAS 0.3.21 reached 26 GFLOP/s on a core of Emerald Rapids (median of
// dynmo bench gemm --clock virtual), and 115 with OPENBLAS_CORETYPE=SKYLAKEX.
func Advice(identity string) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(identity, "cpu "), " ")
	core := map[string]string{"avx512": "SKYLAKEX", "avx2": "HASWELL"}[path]
	if core == "" || !strings.Contains(identity, "OpenBLAS") || !strings.Contains(identity, " Prescott") {
		return ""
	}
	return fmt.Sprintf("this OpenBLAS does not know this CPU and takes its kernels for Prescott; with OPENBLAS_CORETYPE=%s in the environment "+
		"of every rank products take a fraction of the time, and have other bits", core)
}
