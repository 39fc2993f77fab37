package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/files"
	"dynmo/src/weights"
)

// ckptCommand returns the commands on files of weights.
func ckptCommand() *cobra.Command {
	return group("ckpt", "Check a run's checkpoints, export its model; look into files of weights", "",
		ckptInspect(), ckptVerify(), ckptImport(), ckptExport())
}

// contents describes a safetensors file.
type contents struct {
	File     string            `json:"file"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []contentsTensor  `json:"tensors"` // in the order of their data
}

type contentsTensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
}

func ckptInspect() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "What a safetensors file holds: names, types, shapes and bytes",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := weights.Open(args[0])
			if err != nil {
				return usageError{err}
			}
			defer f.Close()
			all := contents{f.Name, f.Metadata, []contentsTensor{}}
			for _, t := range f.Tensors {
				all.Tensors = append(all.Tensors, contentsTensor{t.Name, string(t.DType), t.Shape, t.Bytes()})
			}
			return tellAnswer(c, all, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return c
}

// print writes a line per tensor, and their sum. Names are quoted if they contain control
// characters of a terminal.
func (c contents) print(w io.Writer) error {
	var b strings.Builder
	total := int64(0)
	fmt.Fprintf(&b, "%-8s %14s %-16s %s\n", "dtype", "bytes", "shape", "name")
	for _, t := range c.Tensors {
		name := fmt.Sprintf("%q", t.Name)
		if name == `"`+t.Name+`"` {
			name = t.Name
		}
		fmt.Fprintf(&b, "%-8s %14d %-16s %s\n", t.DType, t.Bytes, fmt.Sprint(t.Shape), name)
		total += t.Bytes
	}
	fmt.Fprintf(&b, "%d tensors, %d bytes\n", len(c.Tensors), total)
	_, err := io.WriteString(w, b.String())
	return err
}

func ckptVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify RUN_DIR|CHECKPOINT|FILE",
		Short: "Read checkpoints or a safetensors file whole, and check them",
		Long: `Read the checkpoints of a run, one of them, or a safetensors file, whole, and check them.
Of a checkpoint it checks the manifest, the length and SHA-256 of every file, and that the files
hold every layer of the run's model. Of a file it checks the header, and that the tensors fill
its data without holes or overlaps. A dynmo weights file must hold every parameter of its model
in the right shape. The file's SHA-256 is printed.

Exit status: 0 all is whole; 2 something is damaged, and a line names it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				return verifyCheckpoints(c, args[0])
			}
			f, err := weights.Open(args[0])
			if err != nil {
				return usageError{err}
			}
			defer f.Close()
			kind := "safetensors"
			if f.Own() {
				kind = "dynmo weights"
				if _, err := f.Weights(); err != nil {
					return usageError{fmt.Errorf("%s: %w", f.Name, err)}
				}
			}
			file, size, err := files.Regular(args[0], files.Unbound)
			if err != nil {
				return err
			}
			defer file.Close()
			h := sha256.New()
			bytes, err := io.Copy(io.MultiWriter(h, &shownBytes{bar: barOf(c), total: size}), file)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, %d tensors, %d bytes, sha256 %x\n", files.Visible(f.Name), kind, len(f.Tensors), bytes, h.Sum(nil))
			return err
		},
	}
}

func ckptImport() *cobra.Command {
	var made, config target
	c := &cobra.Command{
		Use:   "import FROM -o FILE",
		Short: "Make a dynmo weights file of a Hugging Face directory",
		Long: `Make a dynmo weights file of a Hugging Face directory (config.json with
model.safetensors or its shards and their index; GPT-2, LLaMA, Mistral without a window,
Mixtral or LLaMA-MoE; float32, bfloat16 or float16).
The weights file is safetensors with values as they are stored; its names are dynmo's, and
parts that are computed as one, as queries, keys and values, are one tensor. It also has the
directory's generation_config.json and the files of its tokenizer (tokenizer.json,
tokenizer.model and their like). ckpt export writes them again. A field of config.json is
refused by name if it is unknown, or makes a model that dynmo cannot compute (dynmo help
fields). Memory holds a piece of one tensor at a time.

The settings of a run that begins with the weights are printed (unless FILE is -), or written to
the file of --config: dynmo train takes it as CONFIG. Add data.path and what else the run wants.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			config.force = made.force
			if err := cmp.Or(made.check(), config.check()); err != nil {
				return err
			}
			if config.path != "" && made.standard() {
				return usageError{errors.New("--config: its settings name the weights file: want --output FILE beside it, not -")}
			}
			if info, err := os.Stat(args[0]); err != nil {
				return usageError{err}
			} else if !info.IsDir() {
				return usageError{fmt.Errorf("%s: a file, want a Hugging Face directory: config.json with model.safetensors", args[0])}
			}
			w, err := weights.OpenHuggingFace(args[0])
			if err != nil {
				return usageError{err}
			}
			defer w.Close()
			tellNotes(c.ErrOrStderr(), w.Doubts...)
			w.Watch(barOf(c).Show)
			if err := made.write(c, w.Write); err != nil || made.standard() {
				return err
			}
			settings := func(out io.Writer) error {
				_, err := io.WriteString(out, w.Settings(made.path))
				return err
			}
			if config.path != "" {
				return config.write(c, settings)
			}
			return settings(c.OutOrStdout())
		},
	}
	made.required(c, "weights file to write; - is standard output")
	config.named(c, "config", "", "file to write with the settings of a run that begins with the weights; - is standard output")
	return c
}
