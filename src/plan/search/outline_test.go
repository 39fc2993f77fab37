package search

import (
	"testing"

	"dynmo/src/config"
)

// TestDenseCountsReferences: where layers freeze by their plasticity, every block is
// reckoned larger by a byte for each weight and four for each row, on a CPU alone.
func TestDenseCountsReferences(t *testing.T) {
	c := config.Default()
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads = 2, 8, 2
	without := Dense(c)
	c.Dynamic.Kind = "freeze"
	h := int64(c.Model.Hidden)
	rows, values := 9*h+8, 12*h*h+13*h // of the matrices 3h, h, 4h and h rows; biases of as many values, and norms, are 8 vectors
	want := 4*rows + values
	for l, layer := range Dense(c).Layers {
		more := layer.Bytes.Static() - without.Layers[l].Bytes.Static()
		if block := l == 1 || l == 2; block && more != want || !block && more != 0 {
			t.Errorf("%s: %d bytes more, want %d", layer.Name, more, want)
		}
	}
	c.Device.Kind, c.Device.Precision = "cuda", "f32"
	if got := Dense(c).Layers[1].Bytes.Static(); got != without.Layers[1].Bytes.Static() {
		t.Errorf("a block on a GPU takes %d bytes, want %d", got, without.Layers[1].Bytes.Static())
	}
}
