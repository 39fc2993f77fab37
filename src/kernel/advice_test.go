package kernel

import (
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	for identity, want := range map[string]string{
		"cpu avx512 OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH Prescott MAX_THREADS=64": "OPENBLAS_CORETYPE=SKYLAKEX ",
		"cpu avx2 OpenBLAS 0.3.21 DYNAMIC_ARCH Prescott MAX_THREADS=64":              "OPENBLAS_CORETYPE=HASWELL ",
		"cpu generic OpenBLAS 0.3.21 DYNAMIC_ARCH Prescott MAX_THREADS=64":           "",
		"cpu avx512 OpenBLAS 0.3.21 DYNAMIC_ARCH SkylakeX MAX_THREADS=64":            "",
		"cpu avx512": "", "ref": "",
	} {
		if got := Advice(identity); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", identity, got, want)
		}
	}
}
