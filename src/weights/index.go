package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/files"
)

// index is model.safetensors.index.json: the file of every tensor of a sharded model.
type index struct {
	text  []byte
	files map[string]string // by tensor
	total files.Value       // metadata.total_size, bytes of all tensors; empty if it is missing
	note  string            // what check noted; "": nothing
}

// parseIndex reads an index. The named files must be in the directory of the index.
func parseIndex(text []byte) (*index, error) {
	x := &index{text: text, files: make(map[string]string)}
	err := files.Value{JSON: text}.Members(func(key string, v files.Value) error {
		switch key {
		case "metadata":
			in, err := v.Object()
			x.total = in["total_size"]
			return err
		case "weight_map":
			return v.Members(func(tensor string, v files.Value) (err error) {
				x.files[tensor], err = shardName(v)
				return err
			})
		}
		return nil
	})
	if err == nil && len(x.files) == 0 {
		err = errors.New("weight_map is missing or empty")
	}
	return x, err
}

// maxName is the longest name of a file in bytes, the limit of common file systems.
const maxName = 255

// shardName returns the name of a shard; a name with a directory is an error.
func shardName(v files.Value) (string, error) {
	name, err := v.Text()
	if err == nil && (!filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`)) {
		return "", v.Fail("file name %.100q: want one without directories", name)
	}
	if err == nil && len(name) > maxName {
		return "", v.Fail("file name of %d bytes: want at most %d", len(name), maxName)
	}
	if err == nil && !strings.HasSuffix(name, ".safetensors") {
		return "", v.Fail("file name %.100q: want one that ends in .safetensors", name)
	}
	return name, err
}

// newIndex returns the index for tensors and their files, in the format of Hugging Face's library.
func newIndex(files map[string]string) *index {
	text, err := json.MarshalIndent(struct {
		Metadata map[string]int64  `json:"metadata"`
		Files    map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": 0}, files}, "", "  ")
	if err != nil {
		panic("weights: index does not marshal")
	}
	x, err := parseIndex(append(text, '\n'))
	if err != nil {
		panic("weights: index that was made does not parse")
	}
	return x
}

// names returns the names of the files, sorted.
func (x *index) names() []string {
	return slices.Compact(slices.Sorted(maps.Values(x.files)))
}

// file returns the file of a tensor.
func (x *index) file(tensor string) string {
	if x == nil {
		return modelFile
	}
	return x.files[tensor]
}

// sized returns the text with `total` as the number of bytes of all tensors.
func (x *index) sized(total int64) []byte {
	if size, ok := x.size(); x.total.JSON == nil || ok && size == total {
		return x.text
	}
	return slices.Replace(slices.Clone(x.text), int(x.total.At), int(x.total.At)+len(x.total.JSON), []byte(strconv.FormatInt(total, 10))...)
}

// size returns metadata.total_size. It is an integer, but some programs write 1.0.
func (x *index) size() (int64, bool) {
	size, err := strconv.ParseFloat(string(x.total.JSON), 64)
	return int64(size), err == nil && size >= 0 && size < 1<<62
}

// shardPattern matches the names of shards. Files with other names do not belong to the model.
var shardPattern = regexp.MustCompile(`^model-\d+-of-\d+\.safetensors$`)

// open opens the shards in a directory, and checks that they have the tensors of the index.
func (x *index) open(dir string) ([]*File, error) {
	names := x.names()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if shardPattern.MatchString(e.Name()) && !slices.Contains(names, e.Name()) {
			return nil, fmt.Errorf("%s: a shard that %s does not name: want it away, or an index of all shards", filepath.Join(dir, e.Name()), indexFile)
		}
	}
	files, err := openShards(dir, names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: a shard that %s names", dir, err, indexFile)
	}
	if err != nil {
		return nil, err
	}
	if err := x.check(files); err != nil {
		closeAll(files)
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, indexFile), err)
	}
	return files, nil
}

// openShards opens files within dir. A link to a file outside dir is an error.
func openShards(dir string, names []string) (list []*File, err error) {
	for _, name := range names {
		path := filepath.Join(dir, name)
		f, size, err := files.Regular(path, files.Unbound) // a link, as Hugging Face's cache has them, is followed
		var s *File
		if err == nil {
			s, err = opened(path, f, size)
		}
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// check returns an error unless each tensor is in the file that the index names and no file has
// another tensor. It notes a size that is not that of the index.
func (x *index) check(files []*File) error {
	home := make(map[string]string)
	total := int64(0)
	for _, f := range files {
		name := filepath.Base(f.Name)
		for _, t := range f.Tensors {
			if other, twice := home[t.Name]; twice {
				return fmt.Errorf("tensor %.100q is in two files, %s and %s", t.Name, other, name)
			}
			home[t.Name] = name
			total += t.Bytes()
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(home)) {
		if said, ok := x.files[tensor]; !ok {
			return fmt.Errorf("weight_map does not name tensor %.100q, which is in %s", tensor, home[tensor])
		} else if said != home[tensor] {
			return fmt.Errorf("weight_map: tensor %.100q: is in %s, not in %s", tensor, home[tensor], said)
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(x.files)) {
		if home[tensor] == "" {
			return fmt.Errorf("weight_map: tensor %.100q: is not in %s, nor in another shard", tensor, x.files[tensor])
		}
	}
	if size, ok := x.size(); x.total.JSON != nil && (!ok || size != total) { // a program that edits shards may leave it as it was
		x.note = fmt.Sprintf("metadata: total_size is %.100s, the tensors have %d bytes together, and are taken as they are", x.total, total)
	}
	return nil
}
