package record

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"dynmo/src/config"
)

const (
	// settingsTag is the tag of the settings as text.
	settingsTag = "config.toml/text_summary"
	// sessionTag is the tag under which TensorBoard's plugin of hyperparameters looks for those of a run.
	sessionTag = "_hparams_/session_start_info"

	tensorClass = 2 // SummaryMetadata.data_class of values that are tensors
	floatType   = 1 // TensorProto.dtype
	textType    = 7 // TensorProto.dtype
)

// settings adds the settings as text, and as hyperparameters by which TensorBoard compares runs. Settings
// without effect are no hyperparameters.
func (b *board) settings(c config.Config, text string, at time.Time) {
	shown := "    "
	for _, char := range text {
		if shown += string(char); char == '\n' {
			shown += "    " // an indented line is code in Markdown
		}
	}
	event := appendWall(nil, at)
	tensor := appendText(appendMessage([]byte{1 << 3, textType}, 2, nil), 8, shown)
	summary := appendMessage(nil, 1, tensorValue(settingsTag, "text", nil, tensor))
	tensor = append(appendMessage([]byte{1 << 3, floatType}, 2, appendMessage(nil, 2, []byte{1 << 3, 1})), 5<<3|5, 0, 0, 0, 0)
	summary = appendMessage(summary, 1, tensorValue(sessionTag, "hparams", appendMessage(nil, 3, sessionStart(c, at)), tensor))
	b.record(appendMessage(event, 5, summary))
}

// tensorValue returns a Summary.Value with a TensorProto for a plugin.
func tensorValue(tag, plugin string, content, tensor []byte) []byte {
	data := appendText(nil, 1, plugin)
	if content != nil {
		data = appendMessage(data, 2, content)
	}
	metadata := append(appendMessage(nil, 1, data), 4<<3, tensorClass)
	return appendMessage(appendMessage(appendText(nil, 1, tag), 8, tensor), 9, metadata)
}

// sessionStart returns a SessionStartInfo of tensorboard/plugins/hparams/plugin_data.proto.
func sessionStart(c config.Config, at time.Time) (info []byte) {
	for _, s := range c.Effective() {
		entry := appendMessage(appendText(nil, 1, s.Name), 2, structValue(s.Value))
		info = appendMessage(info, 1, entry)
	}
	return binary.LittleEndian.AppendUint64(append(info, 5<<3|1), math.Float64bits(float64(at.UnixMicro())/1e6))
}

// structValue returns a google.protobuf.Value for a value in TOML.
func structValue(text string) []byte {
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return binary.LittleEndian.AppendUint64([]byte{2<<3 | 1}, math.Float64bits(x))
	}
	switch text {
	case "true":
		return []byte{4 << 3, 1}
	case "false":
		return []byte{4 << 3, 0}
	}
	if plain, err := strconv.Unquote(text); err == nil {
		text = plain
	}
	return appendText(nil, 3, text)
}
