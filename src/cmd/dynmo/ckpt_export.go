package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/files"
	"dynmo/src/weights"
)

// exported is a format of export, and its flags.
type exported struct {
	made              target
	stored, modelType string
	shard             string
	step              int

	dtype weights.DType // "": unchanged
	bytes int64         // of a shard; 0: files keep their sizes
}

func ckptExport() *cobra.Command {
	e := exported{step: -1}
	c := &cobra.Command{
		Use:   "export RUN_DIR|CHECKPOINT|FILE -o TO",
		Short: "Make a Hugging Face directory of a run's model or a weights file",
		Long: `Make a Hugging Face directory. The directory is a GPT2LMHeadModel,
LlamaForCausalLM, MixtralForCausalLM or LlamaMoEForCausalLM (where moe.scale or moe.router want
it, or with --model-type); dynmo sample reads it too. FROM is a run (its newest whole
checkpoint, or the one of --step), a checkpoint, or a dynmo weights file. The directory has the
files that the weights were imported from, or files of --shard-size. Weights keep their type, a
run's float32; --dtype rounds them to another. Pruned weights are zero. The configuration and
the tokenizer of training go with the weights. The tokenizer is that of the import or of data
prepare, or else bytes, or GPT-2's; no other is known. A tokenizer.model without tokenizer.json
gets one with the same ids. In tokenizer_config.json, tokenizer_class then becomes
PreTrainedTokenizerFast, because transformers' LlamaTokenizer sets spaces by other rules.

Positions (max_position_embeddings) and router_aux_loss_coef are those of the weights that a model
was imported from, also after training on them. So is generation_config.json, if the same token
ends texts; its bos_token_id becomes that of config.json. Otherwise it has only the two tokens.

A model with exits, with attention in buckets or with a mixture of depths becomes the model that
other programs know: its blocks, for all tokens and keys. The tensors that these programs do not
know go into dynmo.safetensors. DYNMO.md has their names, and says how the results differ. The
model in plain PyTorch is dynmo_reference.py. It also lies beside a LLaMA-MoE, which no current
program loads. No other program has keys that are made of queries (attention.keys = shared).

TO is written whole or not at all. With --force the weights of another model in it go, and
its tokenizer if this one has one; other files stay.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := e.check(c); err != nil {
				return err
			}
			o, err := openOrigin(c, args[0], e.step)
			if err != nil {
				return usageError{err}
			}
			defer o.weights.Close()
			if o.replayed {
				return usageError{fmt.Errorf("%s: %w", args[0], dynamic.ErrReplayed)}
			}
			return e.write(c, o)
		},
	}
	e.made.required(c, "directory to make")
	c.Flags().StringVar(&e.stored, "dtype", "", "of the weights: float32, bfloat16 or float16 (default as they are stored)")
	c.Flags().StringVar(&e.modelType, "model-type", "", "llama or mistral; of a model with experts mixtral or llama_moe (default its own; of a run the first that can describe it)")
	c.Flags().StringVar(&e.shard, "shard-size", "", "most bytes of a file of Hugging Face's, as 5GB (default one file, or as imported)")
	c.Flags().IntVar(&e.step, "step", e.step, "of a run, the checkpoint after this number of steps (default the newest)")
	return c
}

// check validates the flags, and sets dtype and bytes.
func (e *exported) check(c *cobra.Command) (err error) {
	if c.Flags().Changed("step") && e.step < 0 {
		return usageError{fmt.Errorf("--step %d: want at least 0", e.step)}
	}
	if c.Flags().Changed("dtype") {
		if e.dtype, err = weights.Stored(e.stored); err != nil {
			return usageError{fmt.Errorf("--dtype %w", err)}
		}
	}
	if c.Flags().Changed("shard-size") {
		if e.bytes, err = size(e.shard); err != nil {
			return usageError{fmt.Errorf("--shard-size %w", err)}
		}
	}
	return e.made.checkDirectory()
}

// write exports the model to the directory.
func (e *exported) write(c *cobra.Command, o origin) error {
	if err := o.weights.Base(); err != nil {
		return usageError{err}
	}
	if err := o.weights.As(e.modelType); err != nil {
		return usageError{err}
	}
	if e.bytes > 0 {
		o.weights.Shard(e.bytes, e.dtype)
	}
	texts, err := o.files(c)
	if err != nil {
		return err
	}
	tellNotes(c.ErrOrStderr(), o.weights.Notes()...)
	if err := e.made.fail(o.weights.WriteHuggingFace(e.made.path, e.dtype, texts)); err != nil || o.what == "" {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", files.Visible(e.made.path), files.Visible(o.what))
	return err
}

// size parses a number of bytes with kB, MB or GB, as Hugging Face's library does.
func size(text string) (int64, error) {
	unit := int64(1)
	number := text
	for suffix, bytes := range map[string]int64{"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = rest, bytes
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1e18/unit {
		return 0, fmt.Errorf("%.100q, want an integer from 1 with kB, MB, GB or nothing behind it", text)
	}
	return n * unit, nil
}

// differs describes how other programs compute an exported model differently from its training.
func differs(c config.Config) string {
	var list []string
	for _, kind := range dynamic.Active(c) {
		if kind.Exported != nil {
			list = append(list, kind.Exported(c)...)
		}
	}
	return strings.Join(list, "; ")
}
