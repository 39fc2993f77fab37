package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/dynamic"
	"dynmo/src/lab/roofline"
	"dynmo/src/nodebench"
)

// completer returns the completions of the beginning of a word.
type completer = cobra.CompletionFunc

// arguments has, by command path, how the arguments of a command are completed. Arguments of other
// commands are files, or do not exist.
var arguments = map[string]completer{
	"dynmo train": filesEnding("toml"), "dynmo plan": filesEnding("toml"), "dynmo simulate": filesEnding("toml"), "dynmo profile": filesEnding("toml"),
	"dynmo table": folders, "dynmo report": folders,
	"dynmo ckpt inspect": filesEnding("safetensors"),
	"dynmo data inspect": filesEnding("bin"),
}

// flagValues has, by flag, how its values are completed. Values of other flags are files.
var flagValues = map[string]completer{
	"set": settingsOf, "costs": filesEnding("json", "jsonl"), "network": wordsOrFiles(roofline.Names()...), "loads": filesEnding("json"),
	"run-dir": folders, "balancer": words(balancers...), "dynamic": words(dynamisms()...),
	"clock": words("wall", "virtual"), "require": words(examNames()...), "tokenizer": tokenizers,
	"model":  words(slices.Sorted(maps.Keys(nodebench.Sampled))...),
	"format": words(string(data.LLMC), string(data.Megatron)), "dtype": words("float32", "bfloat16", "float16"),
	"model-type": words("llama", "mistral", "mixtral", "llama_moe"), "router": words("linear", "mlp"),
}

// files completes to files with these endings.
func filesEnding(endings ...string) completer {
	return cobra.FixedCompletions(endings, cobra.ShellCompDirectiveFilterFileExt)
}

// folders completes to folders.
func folders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// words completes to one of a few words.
func words(list ...string) completer {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// wordsOrFiles completes to one of a few words, or to files.
func wordsOrFiles(list ...string) completer {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveDefault)
}

// dynamisms returns the values of --dynamic.
func dynamisms() []string {
	names := []string{allKinds}
	for _, w := range dynamic.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

// settingsOf completes a table.key=value. A value of free text is completed to files.
func settingsOf(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	var list []string
	for _, f := range config.Complete(word) {
		list = append(list, cobra.CompletionWithDesc(f.Text, f.Meaning))
	}
	switch valued := strings.Contains(word, "="); {
	case !valued:
		return list, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	case list == nil:
		return nil, cobra.ShellCompDirectiveDefault
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// tokenizers completes to the tokenizers that a command knows by name, or to files.
func tokenizers(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if c.Name() == "sample" {
		return wordsOrFiles("bytes", gpt2)(c, args, word)
	}
	return wordsOrFiles(gpt2, sentencePiece)(c, args, word)
}

// completed adds completion to all commands below c.
func completed(c *cobra.Command) {
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = arguments[c.CommandPath()]
	}
	for flag, complete := range flagValues {
		if c.Flags().Lookup(flag) == nil && c.PersistentFlags().Lookup(flag) == nil {
			continue
		}
		if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err)
		}
	}
	for _, child := range c.Commands() {
		completed(child)
	}
}
