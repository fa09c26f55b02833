// What Go's encoding/json makes of node reports, recorded for tests/noded/test_report.py.
//
// The structures have the members of MindCluster's, in their order, since that order is what CheckCode covers. Make
// the two files anew with `go run checkcode.go > checkcode.json`, by a Go of 1.22 or later, and with
// `go run checkcode.go > checkcode-1.19.json` by an older one, which spells \b and \f as \u0008 and \u000c.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
)

type device struct {
	DeviceType string
	DeviceId   int64
	FaultCode  []string
	FaultLevel string
}

type nodeInfo struct {
	FaultDevList []*device
	NodeStatus   string
}

type report struct {
	NodeInfo  nodeInfo
	CheckCode string
}

// outcome is one case: `text` in hexadecimal digits is what is read; `written` says that json.Marshal made it of
// values. `error` is what json.Unmarshal says; `inner` what json.Marshal makes of what was read, and `accepted`
// whether its SHA-256 is the CheckCode that was read.
type outcome struct {
	Name     string `json:"name"`
	Written  bool   `json:"written"`
	Text     string `json:"text"`
	Error    string `json:"error"`
	Inner    string `json:"inner"`
	Accepted bool   `json:"accepted"`
}

func digest(info nodeInfo) string {
	text, err := json.Marshal(info)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func read(name string, written bool, text []byte) outcome {
	found := report{}
	told := outcome{Name: name, Written: written, Text: hex.EncodeToString(text)}
	if err := json.Unmarshal(text, &found); err != nil {
		told.Error = fmt.Sprintf("%.60s", err)
		return told
	}
	inner, err := json.Marshal(found.NodeInfo)
	if err != nil {
		panic(err)
	}
	told.Inner = string(inner)
	told.Accepted = found.CheckCode != "" && digest(found.NodeInfo) == found.CheckCode
	return told
}

func write(name string, info nodeInfo) outcome {
	text, err := json.Marshal(report{NodeInfo: info, CheckCode: digest(info)})
	if err != nil {
		panic(err)
	}
	return read(name, true, text)
}

// given reads a text, with the CheckCode that fits what Go reads in it in the place of CHECK.
func given(name string, text string) outcome {
	found := report{}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return read(name, false, []byte(text))
	}
	return read(name, false, []byte(strings.ReplaceAll(text, "CHECK", digest(found.NodeInfo))))
}

func one(kind string, id int64, codes []string, level string, status string) nodeInfo {
	return nodeInfo{[]*device{{kind, id, codes, level}}, status}
}

func main() {
	cases := []outcome{
		write("cpu", one("CPU", 1, []string{"0000001D"}, "PreSeparateFault", "PreSeparate")),
		write("psu", one("PSU", 4, []string{"0300000D"}, "NotHandleFault", "Healthy")),
		write("two-codes", one("CPU", 1, []string{"0000001D", "2C000031"}, "SeparateFault", "UnHealthy")),
		write("zero", nodeInfo{}),
		write("nil-list", nodeInfo{nil, "Healthy"}),
		write("empty-list", nodeInfo{[]*device{}, "PreSeparate"}),
		write("nil-codes", one("NPU", 0, nil, "SeparateFault", "UnHealthy")),
		write("empty-codes", one("NPU", 0, []string{}, "SeparateFault", "UnHealthy")),
		write("largest-id", one("NPU", math.MaxInt64, []string{"x"}, "", "")),
		write("least-id", one("NPU", math.MinInt64, []string{"x"}, "", "")),
		write("negative-id", one("NPU", -1, []string{"x"}, "", "")),
		write("markup", one("<b>&amp;</b>", 0, []string{"<", ">", "&", "'", "\"", "\\", "/"}, "a\\u003cb", "")),
		write("separators", one("\u2028\u2029", 0, []string{"a\u2028", "\u2029b"}, "", "\u2028")),
		write("other-scripts", one("風扇", 0, []string{"é", "😀", "\U0010ffff", "\ufeff", "\ufffd"}, "İ", "\u0085")),
		write("del", one("\x7f", 0, []string{"a\x7fb"}, "", "")),
		write("bytes-that-are-no-text", one("\xff", 0, []string{"a\xe2\x82b", "\xed\xa0\x80"}, "", "")),
		write("many", nodeInfo{[]*device{
			{"Disk", 3, []string{"02000009"}, "PreSeparateFault"},
			{"CPU", 0, []string{"0000001D"}, "PreSeparateFault"},
			{"Disk", 2, []string{"02000007", "02000017"}, "PreSeparateFault"},
		}, "PreSeparate"}),
		write("null-device", nodeInfo{[]*device{nil}, "Healthy"}),
	}
	for control := 0; control < 0x20; control++ {
		name := fmt.Sprintf("control-%02x", control)
		cases = append(cases, write(name, one(string(rune(control)), 0, []string{"a" + string(rune(control))}, "", "")))
	}

	inner := `"NodeInfo":{"FaultDevList":[{"DeviceType":"CPU","DeviceId":1,"FaultCode":["0000001D"],` +
		`"FaultLevel":"PreSeparateFault"}],"NodeStatus":"PreSeparate"}`
	withDevice := func(members string) string {
		return `{"NodeInfo":{"FaultDevList":[` + members + `],"NodeStatus":"Healthy"},"CheckCode":"CHECK"}`
	}
	for _, text := range [][2]string{
		{"as-nodeD", `{` + inner + `,"CheckCode":"CHECK"}`},
		{"check-code-first", `{"CheckCode":"CHECK",` + inner + `}`},
		{"spread-over-lines", " {\r\n\t" + inner + " ,\n \"CheckCode\" : \"CHECK\"\n}\n"},
		{"unknown-members", `{` + inner + `,"CheckCode":"CHECK","Added":[1e999,{"deep":[-0.5]}],"":null}`},
		{"lower-case-members", strings.ToLower(`{"NodeInfo":{"NodeStatus":"`) + `Healthy"},"checkcode":"CHECK"}`},
		{"kelvin-and-long-s", `{"NodeInfo":{"Node\u017ftatuſ":"Healthy"},"Chec\u212aCode":"CHECK"}`},
		{"null-info", `{"NodeInfo":null,"CheckCode":"CHECK"}`},
		{"no-info", `{"CheckCode":"CHECK"}`},
		{"null-status", `{"NodeInfo":{"FaultDevList":null,"NodeStatus":null},"CheckCode":"CHECK"}`},
		{"empty-device", withDevice(`{}`)},
		{"null-members", withDevice(`{"DeviceType":null,"DeviceId":null,"FaultCode":null,"FaultLevel":null}`)},
		{"null-code", withDevice(`{"FaultCode":[null,"A"]}`)},
		{"minus-zero", withDevice(`{"DeviceId":-0}`)},
		{"escapes", withDevice(`{"DeviceType":"\u0043\u0050\u0055\/\b\f\n\r\t\"\\","FaultLevel":"\ud83d\ude00"}`)},
		{"halves-of-pairs", withDevice(`{"DeviceType":"\ud83d","FaultLevel":"\ude00\ud83d\ud83d\ude00"}`)},
		{"raw-bytes", withDevice("{\"DeviceType\":\"\xff\xe2\x82\xf0\x9f\",\"FaultLevel\":\"\xed\xa0\x80\"}")},
		{"raw-del", withDevice("{\"DeviceType\":\"\x7f\"}")},
		{"empty-check-code", `{` + inner + `,"CheckCode":""}`},
		{"null-check-code", `{` + inner + `,"CheckCode":null}`},
		{"no-check-code", `{` + inner + `}`},
		{"old-layout", `{"NodeInfo":{"FaultDevList":[{"DeviceType":"CPU","DeviceId":1,"FaultCode":["00000011"],` +
			`"FaultLevel":"SeparateFault"}],"HeartbeatTime":1710907679,"HeartbeatInterval":5,` +
			`"NodeStatus":"UnHealthy"},"CheckCode":"CHECK"}`},
		{"upper-case-check-code", `{"NodeInfo":{},` +
			`"CheckCode":"4C97CDDCB947BD707778EB50B0986A69768AFC2EF3E4F351DB0B92E9D07D1FED"}`},
		{"number-for-code", withDevice(`{"FaultCode":[1]}`)},
		{"text-for-id", withDevice(`{"DeviceId":"1"}`)},
		{"fraction-for-id", withDevice(`{"DeviceId":1.0}`)},
		{"exponent-for-id", withDevice(`{"DeviceId":1e2}`)},
		{"id-too-large", withDevice(`{"DeviceId":9223372036854775808}`)},
		{"id-far-too-large", withDevice(`{"DeviceId":` + strings.Repeat("9", 5000) + `}`)},
		{"list-for-info", `{"NodeInfo":[],"CheckCode":"CHECK"}`},
		{"object-for-list", `{"NodeInfo":{"FaultDevList":{}},"CheckCode":"CHECK"}`},
		{"text-for-codes", withDevice(`{"FaultCode":"A"}`)},
		{"truth-for-status", `{"NodeInfo":{"NodeStatus":true},"CheckCode":"CHECK"}`},
		{"text-for-device", withDevice(`"CPU"`)},
		{"list-around", `[{` + inner + `}]`},
		{"null", `null`},
		{"nothing", ``},
		{"cut-short", `{` + inner},
		{"two-documents", `{` + inner + `,"CheckCode":"CHECK"}{}`},
		{"not-a-number", `{` + inner + `,"CheckCode":"CHECK","x":NaN}`},
		{"infinity", `{` + inner + `,"CheckCode":"CHECK","x":-Infinity}`},
		{"leading-zero", withDevice(`{"DeviceId":01}`)},
		{"raw-control", withDevice("{\"DeviceType\":\"a\nb\"}")},
		{"raw-nul", withDevice("{\"DeviceType\":\"a\x00b\"}")},
		{"single-quotes", `{'NodeInfo':{}}`},
		{"trailing-comma", `{` + inner + `,}`},
		{"comment", `{` + inner + `} // fine`},
		{"mark-of-byte-order", "\ufeff{" + inner + `,"CheckCode":"CHECK"}`},
		{"other-space", "\u00a0{" + inner + `,"CheckCode":"CHECK"}`},
	} {
		cases = append(cases, given(text[0], text[1]))
	}

	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(map[string]interface{}{"go": runtime.Version(), "cases": cases}); err != nil {
		panic(err)
	}
	if _, err := os.Stdout.Write(buffer.Bytes()); err != nil {
		panic(err)
	}
}
