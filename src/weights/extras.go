package weights

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"dynmo/src/files"
	"dynmo/src/model"
)

// Files beside a Hugging Face model: the tensors that no other program knows, under dynmo's names,
// and a text about their names and purposes.
const (
	extrasFile    = "dynmo.safetensors"
	namesFile     = "DYNMO.md"
	kindsFile     = "dynmo.json" // settings of the kinds of dynamism, and thresholds of exits
	referenceFile = "dynmo_reference.py"
)

//go:embed dynmo_reference.py
var reference []byte

// alone reports whether other programs cannot compute the model from the files that they know.
func (w *Weights) alone() bool {
	return w.Config.form.Unknown != "" || w.Config.Model.Beyond() != ""
}

// Notes says why other programs do not load the exported model, or compute other values with it.
func (w *Weights) Notes() (list []string) {
	if w.Config.form.Unknown != "" {
		list = append(list, fmt.Sprintf("%s; %s is the model in plain PyTorch", w.Config.form.Unknown, referenceFile))
	}
	return append(list, w.Differs)
}

// beside returns the files beside the model, except the file of tensors.
func (w *Weights) beside(list []piece) (map[string][]byte, error) {
	kinds, shape := map[string]any{"thresholds": w.Thresholds}, w.Config.Model
	for _, e := range shape.BeyondKinds() {
		kinds[e.Name()] = e
		if h, is := e.(interface {
			Projections(c model.Config, block int) []float32
		}); is {
			kinds["projections"] = projections(shape, h.Projections)
		}
	}
	text, err := json.MarshalIndent(kinds, "", "  ")
	return map[string][]byte{namesFile: w.names(list), kindsFile: append(text, '\n'), referenceFile: reference}, err
}

// projections returns the projections of all blocks, each (heads, buckets/2, channels of a head).
// Sampling finds buckets with them.
func projections(c model.Config, of func(c model.Config, block int) []float32) (blocks [][][][]float32) {
	size := c.Hidden / c.Heads
	for i := range c.Blocks {
		list := of(c, i)
		if len(list) == 0 {
			return nil
		}
		rows := slices.Collect(slices.Chunk(list, size))
		blocks = append(blocks, slices.Collect(slices.Chunk(rows, len(rows)/c.Heads)))
	}
	return blocks
}

// Base returns an error unless other programs can read a model from the same weights with fewer
// layers. For that the layers must have every tensor that the files of other programs have.
func (w *Weights) Base() error {
	c := w.Config.Model
	for _, e := range c.BeyondKinds() {
		if h, is := e.(interface{ Lacks() string }); is && h.Lacks() != "" {
			return errors.New(h.Lacks())
		}
	}
	owners := c.Owners()
	for _, p := range c.Base().Weights() {
		if owners[p.Name] == nil {
			return fmt.Errorf("a model with dynamic.kind = %q: its layers have no %s, which other programs want", c.Beyond(), p.Name)
		}
	}
	return nil
}

// extras returns the tensors that no other program knows, of type d, or of float32 if d is "".
func (w *Weights) extras(d DType) (list []piece) {
	if d == "" {
		d = F32
	}
	for _, p := range w.Config.Model.PrivateWeights() {
		list = append(list, piece{Tensor: Tensor{Name: p.Name, DType: d, Shape: p.Shape}, weight: p, rows: p.Shape[0]})
	}
	return list
}

// writeExtras writes these tensors to a file.
func (w *Weights) writeExtras(path string, list []piece) error {
	return files.Write(path, func(out io.Writer) error { return w.writePieces(out, list) })
}

// names returns the text about the files beside the model.
func (w *Weights) names(list []piece) []byte {
	var b strings.Builder
	if is := w.Config.form; is.Unknown != "" {
		fmt.Fprintf(&b, "# A model of type %s\n\n%s.\n", is.Name, is.Unknown)
	}
	if kind := w.Config.Model.Beyond(); kind != "" {
		fmt.Fprintf(&b, "# A model of dynmo's with dynamic.kind = %q\n\n", kind)
		fmt.Fprintf(&b, "config.json and %s are the model that other programs know. They compute it otherwise:\n%s.\n", modelFile, w.Differs)
	}
	if len(list) > 0 {
		fmt.Fprintf(&b, "\n%s has the tensors that they do not know:\n\n| tensor | shape |\n|---|---|\n", extrasFile)
	}
	for _, t := range list {
		fmt.Fprintf(&b, "| %s | %v |\n", t.Name, t.Shape)
	}
	fmt.Fprintf(&b, "\n%s has the settings of what changed the model. %s is the model in plain PyTorch; it says which models it knows.\n", kindsFile, referenceFile)
	return []byte(b.String())
}
