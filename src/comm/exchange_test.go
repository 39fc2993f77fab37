package comm

import (
	"os"
	"testing"

	"dynmo/src/tensor"
)

// TestRoundsAreOfOneMemory: parts in host and in device memory are refused, whichever is last;
// parts without bytes have no memory.
func TestRoundsAreOfOneMemory(t *testing.T) {
	host := Part{1, tensor.From(make([]byte, 64))}
	onDevice, none := host, Part{Rank: 1}
	onDevice.Mem.Space = tensor.Device
	none.Mem.Space = tensor.Device
	for _, tc := range []struct {
		name         string
		sends, recvs []Part
		panics       bool
	}{
		{"host", []Part{host, none}, []Part{host}, false},
		{"sends differ", []Part{onDevice, host}, nil, true},
		{"receives differ", nil, []Part{host, onDevice}, true},
		{"directions differ", []Part{host}, []Part{onDevice}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := New(silent{[]Peer{{0, "here", os.Getpid()}, {1, "there", 1}}}, Options{})
			defer func() {
				if panicked := recover() != nil; panicked != tc.panics {
					t.Errorf("panics: %v, want %v", panicked, tc.panics)
				}
			}()
			if _, err := g.Exchange(TagReduce, tc.sends, tc.recvs, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
