package checkpoint

import (
	"slices"
	"strconv"
)

// beginKey is the member of a configuration that names the token texts begin with.
const beginKey = "bos_token_id"

// Beginning returns the configuration of a model whose texts begin with a token, where it
// names any.
func (c Config) Beginning(id int32) Config {
	name := strconv.Itoa(int(id))
	err := value{json: c.Text}.members(func(key string, v value) error {
		if key == beginKey {
			c.Text = slices.Replace(slices.Clone(c.Text), int(v.at), int(v.at)+len(v.json), []byte(name)...)
		}
		return nil
	})
	if err != nil {
		panic("checkpoint: a configuration that was read does not parse")
	}
	return c
}
