package expect

import (
	"testing"
	"time"
)

func TestFaultLine(t *testing.T) {
	whole := &Fault{Detect: 800 * time.Millisecond, Recover: 3100 * time.Millisecond, Lost: 4}
	for want, got := range map[string]string{
		"FAULT F04 phase=rename rank=2 PASS detect=0.8s recover=3.1s lost_steps=4": whole.line("F04", "phase=rename rank=2", "PASS"),
		"FAULT F06 test=TestDamage/cut FAIL":                                       (&Fault{}).line("F06", "test=TestDamage/cut", "FAIL"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
