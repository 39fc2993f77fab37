package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"time"

	"dynmo/src/config"
	"dynmo/src/dynamic"
)

const (
	// boardPrefix is the begin of the names of the files that TensorBoard reads.
	boardPrefix = "events.out.tfevents."
	// boardVersion is in the first record of a file; TensorBoard refuses a file without it.
	boardVersion = "brain.Event:2"
	// boardEvery is the time between two writes of buffered records. A killed run may lose the
	// records of this time. TensorFlow's own writer uses the same time.
	boardEvery = 30 * time.Second
)

// board writes a file of scalars for TensorBoard. The file has records in TFRecord's format. Each
// record is an Event of TensorFlow's protocol buffers (tensorboard/compat/proto/event.proto and
// summary.proto).
type board struct {
	file      *appendFile
	buffer    []byte
	written   time.Time       // time of the last write of buffered records
	described map[string]bool // tags whose description has been written
	config    config.Config
	counts    []dynamic.Counts // what layers count under the settings
}

// newBoard makes a new file. Its name differs from that of every other process, host and restart of
// the run. It begins with the settings.
func newBoard(c *claims, settings, host string, at time.Time, restart int) (*board, error) {
	parsed, _, err := config.Parse(SettingsFile, []byte(settings))
	if err != nil {
		return nil, err
	}
	file, err := c.file(fmt.Sprintf("%s%010d.%s.%d.%d", boardPrefix, at.Unix(), host, os.Getpid(), restart))
	if err != nil {
		return nil, err
	}
	b := &board{file: &appendFile{File: file}, described: map[string]bool{}, config: parsed, counts: dynamic.AllCounts(parsed)}
	b.record(appendText(appendWall(nil, at), 3, boardVersion))
	b.settings(parsed, settings, at)
	b.flush(at)
	return b, b.file.failed
}

// scalar is a number of a step. Its tag is Megatron-LM's name if there is one. A time that is not of the wall
// clock has its clock behind the name: such times differ in kind from Megatron-LM's.
type scalar struct {
	tag         string
	description string
	value       float64
}

// scalars returns the scalars of a step.
func (b *board) scalars(m Metrics) []scalar {
	seconds := "seconds, clock=" + m.Clock
	timed := func(tag string) string {
		if m.Clock == "wall" {
			return tag
		}
		return tag + "/" + m.Clock
	}
	list := []scalar{
		{"lm loss", "nats per token", float64(m.Loss)},
		{"grad-norm", "norm of the gradient before clipping", float64(m.GradNorm)},
		{"learning-rate", "of the step", float64(m.LR)},
		{"batch-size", "sequences", float64(m.BatchSize)},
		{timed("iteration-time"), seconds, float64(m.StepSeconds)},
		{timed("tokens-per-second"), "of all replicas, clock=" + m.Clock, float64(m.TokensPerSecond)},
		{"bubble-ratio", "idle / (stages x makespan)", float64(m.BubbleRatio)},
		{"imbalance", "(largest - smallest) / mean load of the stages", float64(m.Imbalance)},
		{"sparsity", "share of prunable parameters that are pruned", float64(m.Sparsity)},
		{timed("balance-time"), "measuring, deciding and moving after the step: " + seconds, float64(m.BalanceSeconds)},
	}
	if flops := m.ModelFLOPs(b.config); flops > 0 {
		list = append(list, scalar{timed("throughput"), "TFLOP/s of a rank, counted as in the dense model, clock=" + m.Clock, flops / 1e12})
	}
	if len(m.BytesPerStage) > 0 {
		list = append(list, scalar{"mem-allocated-bytes", "of the stage with the most", float64(slices.Max(m.BytesPerStage))})
	}
	if m.Validated() {
		list = append(list,
			scalar{"lm loss validation", "nats per token, of data that nothing is trained on", float64(m.ValidationLoss)},
			scalar{"lm loss validation ppl", "perplexity: e to the validation loss", float64(m.ValidationPerplexity)},
			scalar{timed("validation-time"), seconds, float64(m.ValidationSeconds)})
	}
	if m.Ranks > 0 {
		list = append(list,
			scalar{"ranks", "that train, of all replicas", float64(m.Ranks)},
			scalar{"nodes", "with a rank that trains", float64(m.Nodes)})
	}
	if m.Throughput > 0 {
		list = append(list, scalar{"dense-throughput-share", "throughput of the step as a share of the dense model's", float64(m.Throughput)})
	}
	if m.JoulesPerToken > 0 {
		list = append(list, scalar{"joules-per-token", "of all GPUs since the run was last started", float64(m.JoulesPerToken)})
	}
	return append(list, b.counted(m)...)
}

// counted returns a scalar for each number that a kind charts of what a layer counted, such as the load of its
// fullest expert or the tokens that leave there.
func (b *board) counted(m Metrics) (list []scalar) {
	size := m.Size(b.config)
	for _, c := range m.Counts {
		counts, ok := dynamic.Find(b.counts, c.Name)
		if !ok {
			continue
		}
		for _, chart := range counts.Charts {
			about := chart.About
			if chart.Unit != "" {
				about = chart.Unit + ", " + about
			}
			if y := chart.Of(counts.Read(c.Values), size); !math.IsNaN(y) {
				list = append(list, scalar{chart.Title + "/" + c.Layer, about, y})
			}
		}
	}
	return list
}

// add adds the scalars of a step under its iteration number.
func (b *board) add(m Metrics) {
	b.write(m.Step, m.Time, b.scalars(m))
	if m.Time.Sub(b.written) >= boardEvery {
		b.flush(m.Time)
	}
}

// moved adds the size of a move of layers, after the step before it.
func (b *board) moved(e Event, at time.Time) {
	list := []scalar{{"moved-bytes", "of layers that moved between stages after the step", float64(e.Bytes)}}
	if layers, ok := e.Detail["layers"].(int); ok {
		list = append(list, scalar{"moved-layers", "that moved between stages after the step", float64(layers)})
	}
	b.write(e.Step, at, list)
}

// write adds scalars under the iteration number of a step.
func (b *board) write(step int, at time.Time, list []scalar) {
	event := binary.AppendUvarint(append(appendWall(nil, at), 2<<3), uint64(Iteration(step)))
	var summary []byte
	for _, s := range list {
		summary = appendMessage(summary, 1, s.append(!b.described[s.tag]))
		b.described[s.tag] = true
	}
	b.record(appendMessage(event, 5, summary))
}

// purge makes TensorBoard drop the data of a step and of later steps in earlier files. It writes an
// Event with that step and a SessionLog of status START.
func (b *board) purge(step int, at time.Time) {
	event := binary.AppendUvarint(append(appendWall(nil, at), 2<<3), uint64(Iteration(step)))
	b.record(appendMessage(event, 7, []byte{1 << 3, 1}))
	b.flush(at)
}

// append returns a Summary.Value. The first value of a tag has the metadata; TensorBoard ignores a
// tag whose metadata lacks the class of its data.
func (s scalar) append(described bool) []byte {
	value := appendText(nil, 1, s.tag)
	value = binary.LittleEndian.AppendUint32(append(value, 2<<3|5), math.Float32bits(float32(s.value)))
	if !described {
		return value
	}
	metadata := appendMessage(nil, 1, appendText(nil, 1, "scalars"))
	metadata = appendText(metadata, 3, s.description)
	return appendMessage(value, 9, append(metadata, 4<<3, 1))
}

// record adds a record: length, checksum of the length, data, checksum of the data.
func (b *board) record(data []byte) {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b.buffer = append(b.buffer, binary.LittleEndian.AppendUint32(length, maskedCRC(length))...)
	b.buffer = append(b.buffer, binary.LittleEndian.AppendUint32(data, maskedCRC(data))...)
}

// maskedCRC is the checksum of TFRecord: Castagnoli's CRC, rotated and with an offset. The mask
// keeps the checksum useful for data that contain checksums.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// appendWall appends the time field of an Event, in seconds.
func appendWall(dst []byte, at time.Time) []byte {
	seconds := float64(at.UnixMicro()) / 1e6
	return binary.LittleEndian.AppendUint64(append(dst, 1<<3|1), math.Float64bits(seconds))
}

// appendMessage appends a field that is a message, or bytes.
func appendMessage(dst []byte, field byte, message []byte) []byte {
	return append(binary.AppendUvarint(append(dst, field<<3|2), uint64(len(message))), message...)
}

// appendText appends a field that is a text.
func appendText(dst []byte, field byte, text string) []byte {
	return appendMessage(dst, field, []byte(text))
}

// flush writes the buffered records.
func (b *board) flush(at time.Time) {
	b.written = at
	_, _ = b.file.Write(b.buffer) // a dropped entry is counted
	b.buffer = nil
}
