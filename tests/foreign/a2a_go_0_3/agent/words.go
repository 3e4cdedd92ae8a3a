package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
)

// words executes the command in the first word of a message.
type words struct{}

var data = map[string]any{
	"hello": "world", "numbers": []any{1, 2, 3}, "nested": map[string]any{"true": true, "nothing": nil},
}

func (*words) Execute(ctx context.Context, call *a2asrv.RequestContext, queue eventqueue.Queue) error {
	text := ""
	for _, part := range call.Message.Parts {
		if one, ok := part.(a2a.TextPart); ok {
			text += one.Text
		}
	}
	command, rest, _ := strings.Cut(text, " ")
	put := func(event a2a.Event) {
		if err := queue.Write(ctx, event); err != nil {
			log.Print(err)
		}
	}
	status := func(state a2a.TaskState, said string) {
		var message *a2a.Message
		if said != "" {
			message = a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.TextPart{Text: said})
		}
		event := a2a.NewStatusUpdateEvent(call, state, message)
		event.Final = state != a2a.TaskStateWorking
		put(event)
	}
	if command == "reply" {
		put(a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: rest}))
		return nil
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
		return nil
	case "sleep":
		status(a2a.TaskStateWorking, "sleeping for "+rest+" s")
		seconds, _ := strconv.ParseFloat(rest, 64)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		}
		status(a2a.TaskStateCompleted, "")
		return nil
	case "ask":
		status(a2a.TaskStateInputRequired, "what would you like to say?")
		return nil
	case "auth":
		status(a2a.TaskStateAuthRequired, "authenticate, then send anything")
		return nil
	case "fail":
		status(a2a.TaskStateFailed, "failing, as asked")
		return nil
	case "reject":
		status(a2a.TaskStateRejected, "rejecting, as asked")
		return nil
	case "file":
		meta := a2a.FileMeta{Name: "hello.txt", MimeType: "text/plain"}
		bytes := base64.StdEncoding.EncodeToString([]byte("hello from the playground\n"))
		part := a2a.FilePart{File: a2a.FileBytes{FileMeta: meta, Bytes: bytes}}
		artifact.Artifact.Parts, artifact.Artifact.Name = a2a.ContentParts{part}, "hello.txt"
	case "data":
		artifact.Artifact.Parts = a2a.ContentParts{a2a.DataPart{Data: data}}
	case "context":
		artifact.Artifact.Parts = a2a.ContentParts{a2a.TextPart{Text: call.ContextID}}
	case "echo":
		artifact.Artifact.Parts = a2a.ContentParts{a2a.TextPart{Text: rest}}
	default:
		artifact.Artifact.Parts = call.Message.Parts
	}
	put(artifact)
	status(a2a.TaskStateCompleted, "")
	return nil
}

func (*words) Cancel(ctx context.Context, call *a2asrv.RequestContext, queue eventqueue.Queue) error {
	said := a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.TextPart{Text: "canceled, as asked"})
	event := a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, said)
	event.Final = true
	return queue.Write(ctx, event)
}

// stream puts the chunks of `stream N MS`.
func stream(call *a2asrv.RequestContext, rest string, put func(a2a.Event)) {
	count, pause := 0, 0
	fmt.Sscan(rest, &count, &pause)
	for number := 1; number <= count; number++ {
		event := a2a.NewArtifactUpdateEvent(call, "output", a2a.TextPart{Text: fmt.Sprintf("chunk-%d ", number)})
		event.Append = number > 1
		put(event)
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
}
