package nodebench

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"dynmo/src/checkpoint"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/replace"
)

// LlamaGB is a LLaMA with the width of TinyLlama 1.1B (Zhang et al. 2024) and half as many
// blocks: 1.1 GB in bfloat16.
var LlamaGB = model.Config{
	Family: "llama", Blocks: 10, Hidden: 2048, Heads: 32, KeyValueHeads: 4, Intermediate: 5632, Sequence: 2048, Vocab: 32000,
	NormEps: 1e-5, Rope: model.Rope{Base: 10000},
}

// importReach is the share of the rate of copying that imports reach at least.
const importReach = 0.8

// pieceBytes is how much is copied at a time: as much as is imported.
const pieceBytes = 1 << 20

// Import measures making a weights file of a Hugging Face model in bfloat16 below a
// directory, and that of it again:
//
//	import/rate          bytes of the model / seconds of importing it
//	import/ratio         seconds of copying its file / seconds of importing it
//	import/export_ratio  and of exporting it
//
// Each ends when all is on disk, and writes new files. Wrong is the model's file if it comes back as another. Files are read as often as the
// system has them in memory.
func Import(dev device.Device, c model.Config, dir string, rounds int) ([]Result, error) {
	dir, err := os.MkdirTemp(dir, "dynmo-bench-")
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	defer os.RemoveAll(dir)
	b := &importBench{bench: newBench(nil, dev), dir: dir}
	defer b.free()
	if err := b.create(c); err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	forImport, forExport := func() { b.clear("plain", "weights") }, func() { b.clear("plain", "back") }
	imports := b.rounds(rounds, forImport, b.copy, forImport, b.take)
	exports := b.rounds(rounds, forExport, b.copy, forExport, b.export)
	wrong, err := b.compare()
	if err := cmp.Or(b.err, err); err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	size := float64(b.bytes) / 1e9
	b.add("import/bytes", single(size), "GB", 0, 0)
	b.add("import/copy_rate", imports.rate(1, size), "GB/s", 0, 0)
	b.add("import/rate", imports.rate(3, size), "GB/s", 0, wrong)
	b.add("import/ratio", imports.ratio(1, 3, 1), "ratio", importReach, wrong)
	b.add("import/export_ratio", exports.ratio(1, 3, 1), "ratio", 0, wrong)
	return b.results, b.err
}

// importBench is one benchmark of importing.
type importBench struct {
	*bench
	dir   string
	bytes int64 // of the model's file
}

func (b *importBench) at(name ...string) string {
	return filepath.Join(append([]string{b.dir}, name...)...)
}

// modelFile is where a Hugging Face directory has its weights.
const modelFile = "model.safetensors"

// create writes the Hugging Face directory, with values that are all the same piece.
func (b *importBench) create(c model.Config) error {
	if err := os.Mkdir(b.at("hf"), 0o777); err != nil {
		return err
	}
	var list []checkpoint.Tensor
	for _, p := range c.Weights() {
		split := p.Split
		if split == nil {
			split = []model.Rows{{HuggingFace: p.HuggingFace, Rows: p.Shape[0]}}
		}
		for _, rows := range split {
			name := "model." + rows.HuggingFace
			if p.Outside {
				name = rows.HuggingFace
			}
			list = append(list, checkpoint.Tensor{Name: name, DType: checkpoint.BF16, Shape: append([]int64{rows.Rows}, p.Shape[1:]...)})
		}
	}
	values, draw := make([]byte, pieceBytes), random.Keyed(1)
	for i := range values {
		values[i] = byte(draw.Uint64())
	}
	err := replace.Write(b.at("hf", modelFile), func(w io.Writer) error {
		return checkpoint.Write(w, map[string]string{"format": "pt"}, list, func(w io.Writer, t checkpoint.Tensor) error {
			for left := t.Bytes(); left > 0; left -= pieceBytes {
				if _, err := w.Write(values[:min(left, pieceBytes)]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(b.at("hf", modelFile))
	if err != nil {
		return err
	}
	b.bytes = info.Size()
	return os.WriteFile(b.at("hf", checkpoint.ConfigFile), checkpoint.NewConfig(c).Text, 0o666)
}

// clear removes what was made before: a file that is replaced takes the time of its removal,
// and memory that is full of files that of making room.
func (b *importBench) clear(names ...string) {
	for _, name := range names {
		b.err = cmp.Or(b.err, os.RemoveAll(b.at(name)))
	}
}

// copy copies the model's file.
func (b *importBench) copy() {
	from, err := os.Open(b.at("hf", modelFile))
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return
	}
	defer from.Close()
	piece := make([]byte, pieceBytes)
	f, err := os.Create(b.at("plain"))
	for err == nil {
		var n int
		n, err = from.Read(piece)
		if n > 0 {
			_, err = f.Write(piece[:n])
		}
	}
	if err == io.EOF {
		err = cmp.Or(f.Sync(), f.Close())
	}
	b.err = cmp.Or(b.err, err)
}

// take imports the model.
func (b *importBench) take() {
	w, err := checkpoint.OpenHuggingFace(b.at("hf"))
	if err == nil {
		err = cmp.Or(replace.Write(b.at("weights"), w.Write), w.Close())
	}
	b.err = cmp.Or(b.err, err)
}

// export exports it.
func (b *importBench) export() {
	w, err := checkpoint.OpenWeights(b.at("weights"))
	if err == nil {
		err = cmp.Or(w.WriteHuggingFace(b.at("back"), "", nil), w.Close())
	}
	b.err = cmp.Or(b.err, err)
}

// compare returns 1 if the exported file is another than the model's, else 0.
func (b *importBench) compare() (wrong int, err error) {
	var files [2]*os.File
	for i, dir := range []string{"hf", "back"} {
		if files[i], err = os.Open(b.at(dir, modelFile)); err != nil {
			return 0, err
		}
		defer files[i].Close()
	}
	one, other := make([]byte, pieceBytes), make([]byte, pieceBytes)
	for {
		n, err := io.ReadFull(files[0], one)
		m, _ := io.ReadFull(files[1], other)
		if n != m || !bytes.Equal(one[:n], other[:m]) {
			return 1, nil
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
