package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// words executes the command in the first word of a message.
type words struct{}

type events = iter.Seq2[a2a.Event, error]

var data = map[string]any{
	"hello": "world", "numbers": []any{1, 2, 3}, "nested": map[string]any{"true": true, "nothing": nil},
}

func (*words) Execute(ctx context.Context, call *a2asrv.ExecutorContext) events {
	text := ""
	for _, part := range call.Message.Parts {
		text += part.Text()
	}
	command, rest, _ := strings.Cut(text, " ")
	return func(yield func(a2a.Event, error) bool) {
		put := func(event a2a.Event) { yield(event, nil) }
		status := func(state a2a.TaskState, said string) {
			var message *a2a.Message
			if said != "" {
				message = a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.NewTextPart(said))
			}
			put(a2a.NewStatusUpdateEvent(call, state, message))
		}
		if command == "reply" {
			put(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(rest)))
			return
		}
		if call.StoredTask == nil {
			put(a2a.NewSubmittedTask(call, call.Message))
		} else {
			command, rest = "echo", "you said: "+text
		}
		status(a2a.TaskStateWorking, "")
		artifact := a2a.NewArtifactEvent(call)
		switch command {
		case "stream":
			stream(call, rest, put)
			status(a2a.TaskStateCompleted, "")
			return
		case "sleep":
			status(a2a.TaskStateWorking, "sleeping for "+rest+" s")
			seconds, _ := strconv.ParseFloat(rest, 64)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(seconds * float64(time.Second))):
			}
			status(a2a.TaskStateCompleted, "")
			return
		case "ask":
			status(a2a.TaskStateInputRequired, "what would you like to say?")
			return
		case "auth":
			status(a2a.TaskStateAuthRequired, "authenticate, then send anything")
			return
		case "fail":
			status(a2a.TaskStateFailed, "failing, as asked")
			return
		case "reject":
			status(a2a.TaskStateRejected, "rejecting, as asked")
			return
		case "file":
			part := a2a.NewRawPart([]byte("hello from the playground\n"))
			part.Filename, part.MediaType = "hello.txt", "text/plain"
			artifact.Artifact.Parts, artifact.Artifact.Name = a2a.ContentParts{part}, "hello.txt"
		case "data":
			artifact.Artifact.Parts = a2a.ContentParts{a2a.NewDataPart(data)}
		case "context":
			artifact.Artifact.Parts = a2a.ContentParts{a2a.NewTextPart(call.ContextID)}
		case "echo":
			artifact.Artifact.Parts = a2a.ContentParts{a2a.NewTextPart(rest)}
		default:
			artifact.Artifact.Parts = call.Message.Parts
		}
		put(artifact)
		status(a2a.TaskStateCompleted, "")
	}
}

func (*words) Cancel(_ context.Context, call *a2asrv.ExecutorContext) events {
	return func(yield func(a2a.Event, error) bool) {
		said := a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.NewTextPart("canceled, as asked"))
		yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, said), nil)
	}
}

// stream puts the chunks of `stream N MS`.
func stream(call *a2asrv.ExecutorContext, rest string, put func(a2a.Event)) {
	count, pause := 0, 0
	fmt.Sscan(rest, &count, &pause)
	for number := 1; number <= count; number++ {
		event := a2a.NewArtifactUpdateEvent(call, "output", a2a.NewTextPart(fmt.Sprintf("chunk-%d ", number)))
		event.Append = number > 1
		put(event)
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
}
