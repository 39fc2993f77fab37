package weights

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// The first positions stay, and added tokens get the mean row, in every slice of a
// head, tied or not.
func TestFit(t *testing.T) {
	for _, tied := range []bool{true, false} {
		w := imported(t, newGPT2(tied, "").directory(t))
		c := w.Config.Model
		c.Sequence, c.Vocab, c.HeadShards = 4, 20, 3
		fitted, err := w.Fit(c)
		expect.OK(t, err)
		for _, p := range fitted.Config.Model.Weights() {
			got, err := fitted.read(p)
			expect.OK(t, err)
			want := []byte(nil)
			for _, from := range w.Config.Model.Weights() {
				if from.Name == p.Name {
					want, err = w.read(from)
					expect.OK(t, err)
				}
			}
			if shared := min(len(got), len(want)); int64(len(got)) != p.Bytes() || !bytes.Equal(got[:shared], want[:shared]) {
				t.Errorf("%s: %d bytes, or other values", p.Name, len(got))
			}
			if added := len(got) - len(want); added > 0 && added != 7*8*4 {
				t.Errorf("%s: %d bytes added", p.Name, added)
			}
			for at := len(want); at < len(got); at += 4 {
				sum := 0.0
				for row := range 13 {
					sum += float64(float32At(want, row*8*4+at%32))
				}
				if mean := float64(float32At(got, at)); math.Abs(mean-sum/13) > 1e-6 {
					t.Fatalf("%s: %v at byte %d, want the mean %v", p.Name, mean, at, sum/13)
				}
			}
		}
		layers := chain(t, c, tensor.F32).Layers
		for _, l := range layers {
			expect.OK(t, fitted.Load(l))
		}
		if slice := layers[len(layers)-1]; tensor.Of[float32](matrix(slice).W)[8*(matrix(slice).Rows-1)] == 0 {
			t.Error("the last row of the last slice is not loaded")
		}
	}
}

func float32At(b []byte, at int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[at:]))
}

// matrix returns the last parameter of a layer.
func matrix(l *model.Layer) *model.Param { return l.Params()[len(l.Params())-1] }
