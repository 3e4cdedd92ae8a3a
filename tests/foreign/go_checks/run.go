package checks

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

const limit = 60 * time.Second

// Base64Files is an extension of Dragoman: the 0.3 layers keep base64 text in the proto's bytes field.
const Base64Files = "urn:dragoman:base64-files:v1"

// Arguments of the program.
type Arguments struct {
	HTTP, GRPC string
	// Short: one send over the first transport is enough.
	Short bool
	// Bare: the cards of the server declare no capability.
	Bare bool
}

// Parse reads the command line.
func Parse() Arguments {
	var found Arguments
	flag.StringVar(&found.HTTP, "http", "", "the URL of the server")
	flag.StringVar(&found.GRPC, "grpc", "", "HOST:PORT of its gRPC port")
	flag.BoolVar(&found.Short, "short", false, "send one message only")
	flag.BoolVar(&found.Bare, "bare", false, "run the checks of refusals")
	flag.String("project", "", "the project's folder")
	flag.Parse()
	return found
}

// Check is one check under its sentence. It covers these operations of the table.
type Check struct {
	Sentence, Operations string
	Body                 func(*T)
}

// T is what a check gets: the caller, and ways to fail.
type T struct {
	context.Context
	Caller
}

type failed struct{ text string }

// Require fails the check with a formatted text unless the condition holds.
func (t *T) Require(condition bool, format string, values ...any) {
	if !condition {
		panic(failed{fmt.Sprintf(format, values...)})
	}
}

// Raises fails the check unless err is of the kind.
func (t *T) Raises(kind, err error) {
	t.Require(errors.Is(err, kind), "want %q, got %v", kind, err)
}

// must fails the check on an error, and returns the value.
func must[V any](value V, err error) V {
	if err != nil {
		panic(failed{err.Error()})
	}
	return value
}

// Version of a module that this program was built with.
func Version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return "unknown"
}

// Run runs checks over a transport, prints a line for each, and returns whether all passed.
func Run(client, transport string, caller Caller, checks []Check) bool {
	good := true
	for _, check := range checks {
		text, result := attempt(caller, check), "ok"
		if text != "" {
			good, result = false, "failed"
			fmt.Printf("FAIL  %s: %s: %s\n", transport, check.Sentence, strings.ReplaceAll(text, "\n", " "))
		} else {
			fmt.Printf("ok  %s: %s\n", transport, check.Sentence)
		}
		for _, operation := range strings.Split(check.Operations, ", ") {
			fmt.Println(strings.Join([]string{"op", client, transport, operation, result}, "\t"))
		}
	}
	return good
}

func attempt(caller Caller, check Check) (text string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer func() {
		switch found := recover().(type) {
		case nil:
		case failed:
			text = found.text
		default:
			text = fmt.Sprintf("panic: %v", found)
		}
	}()
	check.Body(&T{ctx, caller})
	return ""
}

// Finish ends the program: `end` says that nothing is missing.
func Finish(good bool) {
	fmt.Println("end")
	if !good {
		os.Exit(1)
	}
}

// delivery is one push notification.
type delivery struct {
	header http.Header
	body   []byte
}

// receiver starts a receiver of push notifications that takes everything.
func receiver() (url string, deliveries <-chan delivery, stop func()) {
	got := make(chan delivery, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil && json.Valid(body) {
			got <- delivery{request.Header, body}
		}
	}))
	return server.URL + "/hook", got, server.Close
}
