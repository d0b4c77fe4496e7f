package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ran = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestOnce"}
{"Action":"run","Package":"p","Test":"TestOnce/part"}
{"Action":"output","Package":"p","Test":"TestOnce/part","Output":"    no answer\n"}
{"Action":"fail","Package":"p","Test":"TestOnce/part","Elapsed":1}
{"Action":"output","Package":"p","Test":"TestOnce","Output":"--- FAIL: TestOnce (1.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestOnce","Elapsed":1}
{"Action":"run","Package":"p","Test":"TestTwice"}
{"Action":"fail","Package":"p","Test":"TestTwice","Elapsed":0.5}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"run","Package":"q","Test":"TestOnce"}
{"Action":"pass","Package":"q","Test":"TestOnce","Elapsed":2.25}
{"Action":"run","Package":"p","Test":"TestOnce"}
{"Action":"output","Package":"p","Test":"TestOnce","Output":"--- PASS: TestOnce (0.10s)\n"}
{"Action":"pass","Package":"p","Test":"TestOnce","Elapsed":0.1}
{"Action":"run","Package":"p","Test":"TestTwice"}
{"Action":"fail","Package":"p","Test":"TestTwice","Elapsed":0.4}
`

func TestReportNamesFlakyTestsAndTheSlowest(t *testing.T) {
	all := reports{}
	require.NoError(t, all.read(strings.NewReader(ran)))
	var out bytes.Buffer
	all.writeSummary(&out)
	assert.Equal(t, `FLAKY TestOnce p
    no answer
--- FAIL: TestOnce (1.00s)
slowest tests:
     2.2 s  TestOnce q
     1.0 s  TestOnce p
     0.5 s  TestTwice p
`, out.String())
}

func TestFailuresAreThoseOfEachAttempt(t *testing.T) {
	all := reports{}
	require.NoError(t, all.read(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (1.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (2.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":2}
`)))
	var out bytes.Buffer
	all.writeFailures(&out)
	assert.Equal(t, "--- FAIL: TestA (1.00s)\n--- FAIL: TestA (2.00s)\n", out.String())
}

func TestReportListsTwenty(t *testing.T) {
	all := reports{}
	for n := range 30 {
		all.add(event{Action: "pass", Package: "p", Test: fmt.Sprintf("Test%d", n), Elapsed: float64(n)})
	}
	var out bytes.Buffer
	all.writeSummary(&out)
	assert.Equal(t, 1+slowest, strings.Count(out.String(), "\n"))
}

func TestReportRefusesWhatIsNoReport(t *testing.T) {
	assert.ErrorContains(t, reports{}.read(strings.NewReader("ok p 1.2s\n")), "cannot read \"ok p 1.2s\"")
}
