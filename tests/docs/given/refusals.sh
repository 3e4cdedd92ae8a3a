# Gives a server what its log tells of in docs/how-to/security.md: a caller without credentials, a key that is made and
# revoked, and a token that somebody else has signed.
curl -sS http://$DRAGOMAN_HTTP/message:send -H 'Content-Type: application/json' -d '{}'
export DRAGOMAN_KEY=$(cat key)
key=$(dragoman keys create nightly-report --principal alice --grant agent:echo)
dragoman keys revoke "${key:4:12}"
dragoman send hello --stream --key "$key" || true
curl -sS http://$DRAGOMAN_HTTP/tasks -H "Authorization: Bearer $(cat token)"
