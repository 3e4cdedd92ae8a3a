// Package checks has the checks of the Go SDKs: each SDK adapts its client to Caller.
package checks

import (
	"context"
	"iter"
	"strings"
)

// Part is a part of a message or an artifact. Exactly one of Text, Raw, URL and Data is set.
type Part struct {
	Text, URL   string
	Raw         []byte
	Data        any
	Name, Media string
}

// Task is the caller's view of a task. State is a word like "completed" or "input-required".
type Task struct {
	ID, Context, State string
	// Said is the text of the status.
	Said string
	// Parts are those of all artifacts.
	Parts []Part
	// History has the text of each message.
	History []string
}

// Answer of a send: a task, or the parts of a message.
type Answer struct {
	Task    *Task
	Message []Part
}

// Event of a stream or a webhook. Kind is "task", "message", "status" or "artifact".
type Event struct {
	Kind, TaskID, State string
	Task                *Task
	Parts               []Part
	Append              bool
}

// Request to send a message.
type Request struct {
	Parts         []Part
	Task, Context string
	// Agent has the message; empty for the first one of the server.
	Agent string
	// Now: return without waiting for the end of the turn.
	Now bool
	// Hook registers this webhook with the message.
	Hook *Webhook
}

// Webhook is a push notification configuration.
type Webhook struct{ Task, ID, URL, Token, Scheme, Credentials string }

// Page of a list of tasks.
type Page struct {
	IDs   []string
	Total int
	Next  string
}

// Errors of the SDK that the checks tell apart with errors.Is. The last four are nil where its transport has none.
type Errors struct{ NotFound, NotCancelable, InvalidParams, ContentType, Unsupported, NoPush, Extension error }

// Caller is the client of an SDK on one transport.
type Caller interface {
	Errors() Errors
	// Card returns the name of the agent, and whether it streams.
	Card(context.Context) (string, bool, error)
	ExtendedCard(context.Context) error
	Send(context.Context, Request) (Answer, error)
	Stream(context.Context, Request) iter.Seq2[Event, error]
	Subscribe(context.Context, string) iter.Seq2[Event, error]
	// Get returns a task with at most so many messages of its history; all if negative.
	Get(ctx context.Context, id string, history int) (*Task, error)
	List(ctx context.Context, conversation, token string, size int) (Page, error)
	Cancel(context.Context, string) (*Task, error)
	SetWebhook(context.Context, Webhook) (Webhook, error)
	GetWebhook(ctx context.Context, task, id string) (Webhook, error)
	ListWebhooks(ctx context.Context, task string) ([]Webhook, error)
	DeleteWebhook(ctx context.Context, task, id string) error
	// Delivery reads the body of a push notification.
	Delivery([]byte) (Event, error)
}

// Text returns a message of one text.
func Text(text string) Request { return Request{Parts: []Part{{Text: text}}} }

// Word returns a state as a word, from either version's constants.
func Word(state string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")), "_", "-")
}

func joined(parts []Part) string {
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.Text)
	}
	return all.String()
}
