// A2A 1.0 as protobuf: the package of the published 1.0.1 interface.
//
// On the wire it is identical to what the official SDKs carry; the words are ours.
//
// Conventions that hold everywhere below:
//
// - JSON keys are the lowerCamelCase names; enums are their names; bytes are base64; timestamps
//   are RFC 3339 in UTC.
// - Strings that count or compare (ids, media types) are case-sensitive and opaque to the client.
// - A field marked REQUIRED that is empty is refused with INVALID_ARGUMENT, and a
//   google.rpc.BadRequest detail names the field.
// - What the caller may not see does not exist for it: the answer is NOT_FOUND, never
//   PERMISSION_DENIED.
// - Errors of the protocol itself carry a google.rpc.ErrorInfo whose domain is `a2a-protocol.org`;
//   the reasons named below are its `reason`.
import { enumDesc, fileDesc, messageDesc, serviceDesc } from "@bufbuild/protobuf/codegenv2";
import { file_google_api_annotations } from "../../../google/api/annotations_pb.js";
import { file_google_api_client } from "../../../google/api/client_pb.js";
import { file_google_api_field_behavior } from "../../../google/api/field_behavior_pb.js";
import { file_google_protobuf_empty, file_google_protobuf_struct, file_google_protobuf_timestamp } from "@bufbuild/protobuf/wkt";
/**
 * Describes the file lf/a2a/v1/a2a.proto.
 */
export const file_lf_a2a_v1_a2a = /*@__PURE__*/ fileDesc("ChNsZi9hMmEvdjEvYTJhLnByb3RvEglsZi5hMmEudjEi0QEKBFRhc2sSEAoCaWQYASABKAlCBOJBAQISEgoKY29udGV4dF9pZBgCIAEoCRIrCgZzdGF0dXMYAyABKAsyFS5sZi5hMmEudjEuVGFza1N0YXR1c0IE4kEBAhImCglhcnRpZmFjdHMYBCADKAsyEy5sZi5hMmEudjEuQXJ0aWZhY3QSIwoHaGlzdG9yeRgFIAMoCzISLmxmLmEyYS52MS5NZXNzYWdlEikKCG1ldGFkYXRhGAYgASgLMhcuZ29vZ2xlLnByb3RvYnVmLlN0cnVjdCKLAQoKVGFza1N0YXR1cxIpCgVzdGF0ZRgBIAEoDjIULmxmLmEyYS52MS5UYXNrU3RhdGVCBOJBAQISIwoHbWVzc2FnZRgCIAEoCzISLmxmLmEyYS52MS5NZXNzYWdlEi0KCXRpbWVzdGFtcBgDIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXAi7gEKB01lc3NhZ2USGAoKbWVzc2FnZV9pZBgBIAEoCUIE4kEBAhISCgpjb250ZXh0X2lkGAIgASgJEg8KB3Rhc2tfaWQYAyABKAkSIwoEcm9sZRgEIAEoDjIPLmxmLmEyYS52MS5Sb2xlQgTiQQECEiQKBXBhcnRzGAUgAygLMg8ubGYuYTJhLnYxLlBhcnRCBOJBAQISKQoIbWV0YWRhdGEYBiABKAsyFy5nb29nbGUucHJvdG9idWYuU3RydWN0EhIKCmV4dGVuc2lvbnMYByADKAkSGgoScmVmZXJlbmNlX3Rhc2tfaWRzGAggAygJIrgBCgRQYXJ0Eg4KBHRleHQYASABKAlIABINCgNyYXcYAiABKAxIABINCgN1cmwYAyABKAlIABImCgRkYXRhGAQgASgLMhYuZ29vZ2xlLnByb3RvYnVmLlZhbHVlSAASKQoIbWV0YWRhdGEYBSABKAsyFy5nb29nbGUucHJvdG9idWYuU3RydWN0EhAKCGZpbGVuYW1lGAYgASgJEhIKCm1lZGlhX3R5cGUYByABKAlCCQoHY29udGVudCKtAQoIQXJ0aWZhY3QSGQoLYXJ0aWZhY3RfaWQYASABKAlCBOJBAQISDAoEbmFtZRgCIAEoCRITCgtkZXNjcmlwdGlvbhgDIAEoCRIkCgVwYXJ0cxgEIAMoCzIPLmxmLmEyYS52MS5QYXJ0QgTiQQECEikKCG1ldGFkYXRhGAUgASgLMhcuZ29vZ2xlLnByb3RvYnVmLlN0cnVjdBISCgpleHRlbnNpb25zGAYgAygJIqABChVUYXNrU3RhdHVzVXBkYXRlRXZlbnQSFQoHdGFza19pZBgBIAEoCUIE4kEBAhIYCgpjb250ZXh0X2lkGAIgASgJQgTiQQECEisKBnN0YXR1cxgDIAEoCzIVLmxmLmEyYS52MS5UYXNrU3RhdHVzQgTiQQECEikKCG1ldGFkYXRhGAQgASgLMhcuZ29vZ2xlLnByb3RvYnVmLlN0cnVjdCLGAQoXVGFza0FydGlmYWN0VXBkYXRlRXZlbnQSFQoHdGFza19pZBgBIAEoCUIE4kEBAhIYCgpjb250ZXh0X2lkGAIgASgJQgTiQQECEisKCGFydGlmYWN0GAMgASgLMhMubGYuYTJhLnYxLkFydGlmYWN0QgTiQQECEg4KBmFwcGVuZBgEIAEoCBISCgpsYXN0X2NodW5rGAUgASgIEikKCG1ldGFkYXRhGAYgASgLMhcuZ29vZ2xlLnByb3RvYnVmLlN0cnVjdCK2AQoSU2VuZE1lc3NhZ2VSZXF1ZXN0Eg4KBnRlbmFudBgBIAEoCRIpCgdtZXNzYWdlGAIgASgLMhIubGYuYTJhLnYxLk1lc3NhZ2VCBOJBAQISOgoNY29uZmlndXJhdGlvbhgDIAEoCzIjLmxmLmEyYS52MS5TZW5kTWVzc2FnZUNvbmZpZ3VyYXRpb24SKQoIbWV0YWRhdGEYBCABKAsyFy5nb29nbGUucHJvdG9idWYuU3RydWN0ItMBChhTZW5kTWVzc2FnZUNvbmZpZ3VyYXRpb24SHQoVYWNjZXB0ZWRfb3V0cHV0X21vZGVzGAEgAygJEkwKHXRhc2tfcHVzaF9ub3RpZmljYXRpb25fY29uZmlnGAIgASgLMiUubGYuYTJhLnYxLlRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnEhsKDmhpc3RvcnlfbGVuZ3RoGAMgASgFSACIAQESGgoScmV0dXJuX2ltbWVkaWF0ZWx5GAQgASgIQhEKD19oaXN0b3J5X2xlbmd0aCJoChNTZW5kTWVzc2FnZVJlc3BvbnNlEh8KBHRhc2sYASABKAsyDy5sZi5hMmEudjEuVGFza0gAEiUKB21lc3NhZ2UYAiABKAsyEi5sZi5hMmEudjEuTWVzc2FnZUgAQgkKB3BheWxvYWQi3QEKDlN0cmVhbVJlc3BvbnNlEh8KBHRhc2sYASABKAsyDy5sZi5hMmEudjEuVGFza0gAEiUKB21lc3NhZ2UYAiABKAsyEi5sZi5hMmEudjEuTWVzc2FnZUgAEjkKDXN0YXR1c191cGRhdGUYAyABKAsyIC5sZi5hMmEudjEuVGFza1N0YXR1c1VwZGF0ZUV2ZW50SAASPQoPYXJ0aWZhY3RfdXBkYXRlGAQgASgLMiIubGYuYTJhLnYxLlRhc2tBcnRpZmFjdFVwZGF0ZUV2ZW50SABCCQoHcGF5bG9hZCJiCg5HZXRUYXNrUmVxdWVzdBIOCgZ0ZW5hbnQYASABKAkSEAoCaWQYAiABKAlCBOJBAQISGwoOaGlzdG9yeV9sZW5ndGgYAyABKAVIAIgBAUIRCg9faGlzdG9yeV9sZW5ndGgiuAIKEExpc3RUYXNrc1JlcXVlc3QSDgoGdGVuYW50GAEgASgJEhIKCmNvbnRleHRfaWQYAiABKAkSJAoGc3RhdHVzGAMgASgOMhQubGYuYTJhLnYxLlRhc2tTdGF0ZRIWCglwYWdlX3NpemUYBCABKAVIAIgBARISCgpwYWdlX3Rva2VuGAUgASgJEhsKDmhpc3RvcnlfbGVuZ3RoGAYgASgFSAGIAQESOgoWc3RhdHVzX3RpbWVzdGFtcF9hZnRlchgHIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASHgoRaW5jbHVkZV9hcnRpZmFjdHMYCCABKAhIAogBAUIMCgpfcGFnZV9zaXplQhEKD19oaXN0b3J5X2xlbmd0aEIUChJfaW5jbHVkZV9hcnRpZmFjdHMiiwEKEUxpc3RUYXNrc1Jlc3BvbnNlEiQKBXRhc2tzGAEgAygLMg8ubGYuYTJhLnYxLlRhc2tCBOJBAQISHQoPbmV4dF9wYWdlX3Rva2VuGAIgASgJQgTiQQECEhcKCXBhZ2Vfc2l6ZRgDIAEoBUIE4kEBAhIYCgp0b3RhbF9zaXplGAQgASgFQgTiQQECImAKEUNhbmNlbFRhc2tSZXF1ZXN0Eg4KBnRlbmFudBgBIAEoCRIQCgJpZBgCIAEoCUIE4kEBAhIpCghtZXRhZGF0YRgDIAEoCzIXLmdvb2dsZS5wcm90b2J1Zi5TdHJ1Y3QiOgoWU3Vic2NyaWJlVG9UYXNrUmVxdWVzdBIOCgZ0ZW5hbnQYASABKAkSEAoCaWQYAiABKAlCBOJBAQIiPwoSQXV0aGVudGljYXRpb25JbmZvEhQKBnNjaGVtZRgBIAEoCUIE4kEBAhITCgtjcmVkZW50aWFscxgCIAEoCSJzCg5BZ2VudEludGVyZmFjZRIRCgN1cmwYASABKAlCBOJBAQISHgoQcHJvdG9jb2xfYmluZGluZxgCIAEoCUIE4kEBAhIOCgZ0ZW5hbnQYAyABKAkSHgoQcHJvdG9jb2xfdmVyc2lvbhgEIAEoCUIE4kEBAiLOBQoJQWdlbnRDYXJkEhIKBG5hbWUYASABKAlCBOJBAQISGQoLZGVzY3JpcHRpb24YAiABKAlCBOJBAQISPQoUc3VwcG9ydGVkX2ludGVyZmFjZXMYAyADKAsyGS5sZi5hMmEudjEuQWdlbnRJbnRlcmZhY2VCBOJBAQISKgoIcHJvdmlkZXIYBCABKAsyGC5sZi5hMmEudjEuQWdlbnRQcm92aWRlchIVCgd2ZXJzaW9uGAUgASgJQgTiQQECEh4KEWRvY3VtZW50YXRpb25fdXJsGAYgASgJSACIAQESOAoMY2FwYWJpbGl0aWVzGAcgASgLMhwubGYuYTJhLnYxLkFnZW50Q2FwYWJpbGl0aWVzQgTiQQECEkMKEHNlY3VyaXR5X3NjaGVtZXMYCCADKAsyKS5sZi5hMmEudjEuQWdlbnRDYXJkLlNlY3VyaXR5U2NoZW1lc0VudHJ5Ej0KFXNlY3VyaXR5X3JlcXVpcmVtZW50cxgJIAMoCzIeLmxmLmEyYS52MS5TZWN1cml0eVJlcXVpcmVtZW50EiEKE2RlZmF1bHRfaW5wdXRfbW9kZXMYCiADKAlCBOJBAQISIgoUZGVmYXVsdF9vdXRwdXRfbW9kZXMYCyADKAlCBOJBAQISKwoGc2tpbGxzGAwgAygLMhUubGYuYTJhLnYxLkFnZW50U2tpbGxCBOJBAQISMQoKc2lnbmF0dXJlcxgNIAMoCzIdLmxmLmEyYS52MS5BZ2VudENhcmRTaWduYXR1cmUSFQoIaWNvbl91cmwYDiABKAlIAYgBARpRChRTZWN1cml0eVNjaGVtZXNFbnRyeRILCgNrZXkYASABKAkSKAoFdmFsdWUYAiABKAsyGS5sZi5hMmEudjEuU2VjdXJpdHlTY2hlbWU6AjgBQhQKEl9kb2N1bWVudGF0aW9uX3VybEILCglfaWNvbl91cmwiPgoNQWdlbnRQcm92aWRlchIRCgN1cmwYASABKAlCBOJBAQISGgoMb3JnYW5pemF0aW9uGAIgASgJQgTiQQECItoBChFBZ2VudENhcGFiaWxpdGllcxIWCglzdHJlYW1pbmcYASABKAhIAIgBARIfChJwdXNoX25vdGlmaWNhdGlvbnMYAiABKAhIAYgBARItCgpleHRlbnNpb25zGAMgAygLMhkubGYuYTJhLnYxLkFnZW50RXh0ZW5zaW9uEiAKE2V4dGVuZGVkX2FnZW50X2NhcmQYBCABKAhIAogBAUIMCgpfc3RyZWFtaW5nQhUKE19wdXNoX25vdGlmaWNhdGlvbnNCFgoUX2V4dGVuZGVkX2FnZW50X2NhcmQibQoOQWdlbnRFeHRlbnNpb24SCwoDdXJpGAEgASgJEhMKC2Rlc2NyaXB0aW9uGAIgASgJEhAKCHJlcXVpcmVkGAMgASgIEicKBnBhcmFtcxgEIAEoCzIXLmdvb2dsZS5wcm90b2J1Zi5TdHJ1Y3Qi3QEKCkFnZW50U2tpbGwSEAoCaWQYASABKAlCBOJBAQISEgoEbmFtZRgCIAEoCUIE4kEBAhIZCgtkZXNjcmlwdGlvbhgDIAEoCUIE4kEBAhISCgR0YWdzGAQgAygJQgTiQQECEhAKCGV4YW1wbGVzGAUgAygJEhMKC2lucHV0X21vZGVzGAYgAygJEhQKDG91dHB1dF9tb2RlcxgHIAMoCRI9ChVzZWN1cml0eV9yZXF1aXJlbWVudHMYCCADKAsyHi5sZi5hMmEudjEuU2VjdXJpdHlSZXF1aXJlbWVudCJvChJBZ2VudENhcmRTaWduYXR1cmUSFwoJcHJvdGVjdGVkGAEgASgJQgTiQQECEhcKCXNpZ25hdHVyZRgCIAEoCUIE4kEBAhInCgZoZWFkZXIYAyABKAsyFy5nb29nbGUucHJvdG9idWYuU3RydWN0IqIBChpUYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZxIOCgZ0ZW5hbnQYASABKAkSCgoCaWQYAiABKAkSDwoHdGFza19pZBgDIAEoCRIRCgN1cmwYBCABKAlCBOJBAQISDQoFdG9rZW4YBSABKAkSNQoOYXV0aGVudGljYXRpb24YBiABKAsyHS5sZi5hMmEudjEuQXV0aGVudGljYXRpb25JbmZvIhoKClN0cmluZ0xpc3QSDAoEbGlzdBgBIAMoCSKaAQoTU2VjdXJpdHlSZXF1aXJlbWVudBI8CgdzY2hlbWVzGAEgAygLMisubGYuYTJhLnYxLlNlY3VyaXR5UmVxdWlyZW1lbnQuU2NoZW1lc0VudHJ5GkUKDFNjaGVtZXNFbnRyeRILCgNrZXkYASABKAkSJAoFdmFsdWUYAiABKAsyFS5sZi5hMmEudjEuU3RyaW5nTGlzdDoCOAEigAMKDlNlY3VyaXR5U2NoZW1lEkIKF2FwaV9rZXlfc2VjdXJpdHlfc2NoZW1lGAEgASgLMh8ubGYuYTJhLnYxLkFQSUtleVNlY3VyaXR5U2NoZW1lSAASRgoZaHR0cF9hdXRoX3NlY3VyaXR5X3NjaGVtZRgCIAEoCzIhLmxmLmEyYS52MS5IVFRQQXV0aFNlY3VyaXR5U2NoZW1lSAASQQoWb2F1dGgyX3NlY3VyaXR5X3NjaGVtZRgDIAEoCzIfLmxmLmEyYS52MS5PQXV0aDJTZWN1cml0eVNjaGVtZUgAElEKH29wZW5faWRfY29ubmVjdF9zZWN1cml0eV9zY2hlbWUYBCABKAsyJi5sZi5hMmEudjEuT3BlbklkQ29ubmVjdFNlY3VyaXR5U2NoZW1lSAASQgoUbXRsc19zZWN1cml0eV9zY2hlbWUYBSABKAsyIi5sZi5hMmEudjEuTXV0dWFsVGxzU2VjdXJpdHlTY2hlbWVIAEIICgZzY2hlbWUiVwoUQVBJS2V5U2VjdXJpdHlTY2hlbWUSEwoLZGVzY3JpcHRpb24YASABKAkSFgoIbG9jYXRpb24YAiABKAlCBOJBAQISEgoEbmFtZRgDIAEoCUIE4kEBAiJaChZIVFRQQXV0aFNlY3VyaXR5U2NoZW1lEhMKC2Rlc2NyaXB0aW9uGAEgASgJEhQKBnNjaGVtZRgCIAEoCUIE4kEBAhIVCg1iZWFyZXJfZm9ybWF0GAMgASgJInQKFE9BdXRoMlNlY3VyaXR5U2NoZW1lEhMKC2Rlc2NyaXB0aW9uGAEgASgJEioKBWZsb3dzGAIgASgLMhUubGYuYTJhLnYxLk9BdXRoRmxvd3NCBOJBAQISGwoTb2F1dGgyX21ldGFkYXRhX3VybBgDIAEoCSJVChtPcGVuSWRDb25uZWN0U2VjdXJpdHlTY2hlbWUSEwoLZGVzY3JpcHRpb24YASABKAkSIQoTb3Blbl9pZF9jb25uZWN0X3VybBgCIAEoCUIE4kEBAiIuChdNdXR1YWxUbHNTZWN1cml0eVNjaGVtZRITCgtkZXNjcmlwdGlvbhgBIAEoCSLBAgoKT0F1dGhGbG93cxJDChJhdXRob3JpemF0aW9uX2NvZGUYASABKAsyJS5sZi5hMmEudjEuQXV0aG9yaXphdGlvbkNvZGVPQXV0aEZsb3dIABJDChJjbGllbnRfY3JlZGVudGlhbHMYAiABKAsyJS5sZi5hMmEudjEuQ2xpZW50Q3JlZGVudGlhbHNPQXV0aEZsb3dIABI0CghpbXBsaWNpdBgDIAEoCzIcLmxmLmEyYS52MS5JbXBsaWNpdE9BdXRoRmxvd0ICGAFIABI0CghwYXNzd29yZBgEIAEoCzIcLmxmLmEyYS52MS5QYXNzd29yZE9BdXRoRmxvd0ICGAFIABI1CgtkZXZpY2VfY29kZRgFIAEoCzIeLmxmLmEyYS52MS5EZXZpY2VDb2RlT0F1dGhGbG93SABCBgoEZmxvdyL6AQoaQXV0aG9yaXphdGlvbkNvZGVPQXV0aEZsb3cSHwoRYXV0aG9yaXphdGlvbl91cmwYASABKAlCBOJBAQISFwoJdG9rZW5fdXJsGAIgASgJQgTiQQECEhMKC3JlZnJlc2hfdXJsGAMgASgJEkcKBnNjb3BlcxgEIAMoCzIxLmxmLmEyYS52MS5BdXRob3JpemF0aW9uQ29kZU9BdXRoRmxvdy5TY29wZXNFbnRyeUIE4kEBAhIVCg1wa2NlX3JlcXVpcmVkGAUgASgIGi0KC1Njb3Blc0VudHJ5EgsKA2tleRgBIAEoCRINCgV2YWx1ZRgCIAEoCToCOAEiwgEKGkNsaWVudENyZWRlbnRpYWxzT0F1dGhGbG93EhcKCXRva2VuX3VybBgBIAEoCUIE4kEBAhITCgtyZWZyZXNoX3VybBgCIAEoCRJHCgZzY29wZXMYAyADKAsyMS5sZi5hMmEudjEuQ2xpZW50Q3JlZGVudGlhbHNPQXV0aEZsb3cuU2NvcGVzRW50cnlCBOJBAQIaLQoLU2NvcGVzRW50cnkSCwoDa2V5GAEgASgJEg0KBXZhbHVlGAIgASgJOgI4ASKsAQoRSW1wbGljaXRPQXV0aEZsb3cSGQoRYXV0aG9yaXphdGlvbl91cmwYASABKAkSEwoLcmVmcmVzaF91cmwYAiABKAkSOAoGc2NvcGVzGAMgAygLMigubGYuYTJhLnYxLkltcGxpY2l0T0F1dGhGbG93LlNjb3Blc0VudHJ5Gi0KC1Njb3Blc0VudHJ5EgsKA2tleRgBIAEoCRINCgV2YWx1ZRgCIAEoCToCOAEipAEKEVBhc3N3b3JkT0F1dGhGbG93EhEKCXRva2VuX3VybBgBIAEoCRITCgtyZWZyZXNoX3VybBgCIAEoCRI4CgZzY29wZXMYAyADKAsyKC5sZi5hMmEudjEuUGFzc3dvcmRPQXV0aEZsb3cuU2NvcGVzRW50cnkaLQoLU2NvcGVzRW50cnkSCwoDa2V5GAEgASgJEg0KBXZhbHVlGAIgASgJOgI4ASLcAQoTRGV2aWNlQ29kZU9BdXRoRmxvdxImChhkZXZpY2VfYXV0aG9yaXphdGlvbl91cmwYASABKAlCBOJBAQISFwoJdG9rZW5fdXJsGAIgASgJQgTiQQECEhMKC3JlZnJlc2hfdXJsGAMgASgJEkAKBnNjb3BlcxgEIAMoCzIqLmxmLmEyYS52MS5EZXZpY2VDb2RlT0F1dGhGbG93LlNjb3Blc0VudHJ5QgTiQQECGi0KC1Njb3Blc0VudHJ5EgsKA2tleRgBIAEoCRINCgV2YWx1ZRgCIAEoCToCOAEiXwokR2V0VGFza1B1c2hOb3RpZmljYXRpb25Db25maWdSZXF1ZXN0Eg4KBnRlbmFudBgBIAEoCRIVCgd0YXNrX2lkGAIgASgJQgTiQQECEhAKAmlkGAMgASgJQgTiQQECImIKJ0RlbGV0ZVRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnUmVxdWVzdBIOCgZ0ZW5hbnQYASABKAkSFQoHdGFza19pZBgCIAEoCUIE4kEBAhIQCgJpZBgDIAEoCUIE4kEBAiJ2CiZMaXN0VGFza1B1c2hOb3RpZmljYXRpb25Db25maWdzUmVxdWVzdBIOCgZ0ZW5hbnQYBCABKAkSFQoHdGFza19pZBgBIAEoCUIE4kEBAhIRCglwYWdlX3NpemUYAiABKAUSEgoKcGFnZV90b2tlbhgDIAEoCSItChtHZXRFeHRlbmRlZEFnZW50Q2FyZFJlcXVlc3QSDgoGdGVuYW50GAEgASgJInoKJ0xpc3RUYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZ3NSZXNwb25zZRI2Cgdjb25maWdzGAEgAygLMiUubGYuYTJhLnYxLlRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnEhcKD25leHRfcGFnZV90b2tlbhgCIAEoCSr5AQoJVGFza1N0YXRlEhoKFlRBU0tfU1RBVEVfVU5TUEVDSUZJRUQQABIYChRUQVNLX1NUQVRFX1NVQk1JVFRFRBABEhYKElRBU0tfU1RBVEVfV09SS0lORxACEhgKFFRBU0tfU1RBVEVfQ09NUExFVEVEEAMSFQoRVEFTS19TVEFURV9GQUlMRUQQBBIXChNUQVNLX1NUQVRFX0NBTkNFTEVEEAUSHQoZVEFTS19TVEFURV9JTlBVVF9SRVFVSVJFRBAGEhcKE1RBU0tfU1RBVEVfUkVKRUNURUQQBxIcChhUQVNLX1NUQVRFX0FVVEhfUkVRVUlSRUQQCCo7CgRSb2xlEhQKEFJPTEVfVU5TUEVDSUZJRUQQABINCglST0xFX1VTRVIQARIOCgpST0xFX0FHRU5UEAIykRoKCkEyQVNlcnZpY2US5wEKC1NlbmRNZXNzYWdlEh0ubGYuYTJhLnYxLlNlbmRNZXNzYWdlUmVxdWVzdBoeLmxmLmEyYS52MS5TZW5kTWVzc2FnZVJlc3BvbnNlIpgBgtPkkwKRAToBKlobOgEqIhYve3RlbmFudH0vbWVzc2FnZTpzZW5kWmA6ASoiWy97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS9tZXNzYWdlOnNlbmQiDS9tZXNzYWdlOnNlbmQS8wEKFFNlbmRTdHJlYW1pbmdNZXNzYWdlEh0ubGYuYTJhLnYxLlNlbmRNZXNzYWdlUmVxdWVzdBoZLmxmLmEyYS52MS5TdHJlYW1SZXNwb25zZSKeAYLT5JMClwE6ASpaHToBKiIYL3t0ZW5hbnR9L21lc3NhZ2U6c3RyZWFtWmI6ASoiXS97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS9tZXNzYWdlOnN0cmVhbSIPL21lc3NhZ2U6c3RyZWFtMAESzAEKB0dldFRhc2sSGS5sZi5hMmEudjEuR2V0VGFza1JlcXVlc3QaDy5sZi5hMmEudjEuVGFzayKUAdpBAmlkgtPkkwKIAVoYEhYve3RlbmFudH0vdGFza3Mve2lkPSp9Wl0SWy97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97aWQ9Kn0SDS90YXNrcy97aWQ9Kn0SwQEKCUxpc3RUYXNrcxIbLmxmLmEyYS52MS5MaXN0VGFza3NSZXF1ZXN0GhwubGYuYTJhLnYxLkxpc3RUYXNrc1Jlc3BvbnNlInmC0+STAnNaERIPL3t0ZW5hbnR9L3Rhc2tzWlYSVC97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcxIGL3Rhc2tzEusBCgpDYW5jZWxUYXNrEhwubGYuYTJhLnYxLkNhbmNlbFRhc2tSZXF1ZXN0Gg8ubGYuYTJhLnYxLlRhc2sirQGC0+STAqYBOgEqWiI6ASoiHS97dGVuYW50fS90YXNrcy97aWQ9Kn06Y2FuY2VsWmc6ASoiYi97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97aWQ9Kn06Y2FuY2VsIhQvdGFza3Mve2lkPSp9OmNhbmNlbBKyAwoPU3Vic2NyaWJlVG9UYXNrEiEubGYuYTJhLnYxLlN1YnNjcmliZVRvVGFza1JlcXVlc3QaGS5sZi5hMmEudjEuU3RyZWFtUmVzcG9uc2Ui3gKC0+STAtcCWiISIC97dGVuYW50fS90YXNrcy97aWQ9Kn06c3Vic2NyaWJlWhw6ASoiFy90YXNrcy97aWQ9Kn06c3Vic2NyaWJlWiU6ASoiIC97dGVuYW50fS90YXNrcy97aWQ9Kn06c3Vic2NyaWJlWmcSZS97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97aWQ9Kn06c3Vic2NyaWJlWmo6ASoiZS97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97aWQ9Kn06c3Vic2NyaWJlEhcvdGFza3Mve2lkPSp9OnN1YnNjcmliZTABEvMCCiBDcmVhdGVUYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZxIlLmxmLmEyYS52MS5UYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZxolLmxmLmEyYS52MS5UYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZyKAAtpBDnRhc2tfaWQsY29uZmlngtPkkwLoAToBKlo4OgEqIjMve3RlbmFudH0vdGFza3Mve3Rhc2tfaWQ9Kn0vcHVzaE5vdGlmaWNhdGlvbkNvbmZpZ3NafToBKiJ4L3t0ZW5hbnQ9cHJvamVjdHMvKi9sb2NhdGlvbnMvKi9jb2xsZWN0aW9ucy8qL2VuZ2luZXMvKi9hc3Npc3RhbnRzLyovYWdlbnRzLyp9L3Rhc2tzL3t0YXNrX2lkPSp9L3B1c2hOb3RpZmljYXRpb25Db25maWdzIiovdGFza3Mve3Rhc2tfaWQ9Kn0vcHVzaE5vdGlmaWNhdGlvbkNvbmZpZ3MSgwMKHUdldFRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnEi8ubGYuYTJhLnYxLkdldFRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnUmVxdWVzdBolLmxmLmEyYS52MS5UYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZyKJAtpBCnRhc2tfaWQsaWSC0+STAvUBWjwSOi97dGVuYW50fS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncy97aWQ9Kn1agQESfy97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncy97aWQ9Kn0SMS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncy97aWQ9Kn0S+wIKH0xpc3RUYXNrUHVzaE5vdGlmaWNhdGlvbkNvbmZpZ3MSMS5sZi5hMmEudjEuTGlzdFRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnc1JlcXVlc3QaMi5sZi5hMmEudjEuTGlzdFRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnc1Jlc3BvbnNlIvAB2kEHdGFza19pZILT5JMC3wFaNRIzL3t0ZW5hbnR9L3Rhc2tzL3t0YXNrX2lkPSp9L3B1c2hOb3RpZmljYXRpb25Db25maWdzWnoSeC97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncxIqL3Rhc2tzL3t0YXNrX2lkPSp9L3B1c2hOb3RpZmljYXRpb25Db25maWdzEvUBChRHZXRFeHRlbmRlZEFnZW50Q2FyZBImLmxmLmEyYS52MS5HZXRFeHRlbmRlZEFnZW50Q2FyZFJlcXVlc3QaFC5sZi5hMmEudjEuQWdlbnRDYXJkIp4BgtPkkwKXAVodEhsve3RlbmFudH0vZXh0ZW5kZWRBZ2VudENhcmRaYhJgL3t0ZW5hbnQ9cHJvamVjdHMvKi9sb2NhdGlvbnMvKi9jb2xsZWN0aW9ucy8qL2VuZ2luZXMvKi9hc3Npc3RhbnRzLyovYWdlbnRzLyp9L2V4dGVuZGVkQWdlbnRDYXJkEhIvZXh0ZW5kZWRBZ2VudENhcmQS+gIKIERlbGV0ZVRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnEjIubGYuYTJhLnYxLkRlbGV0ZVRhc2tQdXNoTm90aWZpY2F0aW9uQ29uZmlnUmVxdWVzdBoWLmdvb2dsZS5wcm90b2J1Zi5FbXB0eSKJAtpBCnRhc2tfaWQsaWSC0+STAvUBWjwqOi97dGVuYW50fS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncy97aWQ9Kn1agQEqfy97dGVuYW50PXByb2plY3RzLyovbG9jYXRpb25zLyovY29sbGVjdGlvbnMvKi9lbmdpbmVzLyovYXNzaXN0YW50cy8qL2FnZW50cy8qfS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncy97aWQ9Kn0qMS90YXNrcy97dGFza19pZD0qfS9wdXNoTm90aWZpY2F0aW9uQ29uZmlncy97aWQ9Kn1CRAoNY29tLmxmLmEyYS52MUIIQTJhUHJvdG9QAVobZ29vZ2xlLmdvbGFuZy5vcmcvbGYvYTJhL3YxqgIJTGYuQTJhLlYxYgZwcm90bzM", [file_google_api_annotations, file_google_api_client, file_google_api_field_behavior, file_google_protobuf_empty, file_google_protobuf_struct, file_google_protobuf_timestamp]);
/**
 * Describes the message lf.a2a.v1.Task.
 * Use `create(TaskSchema)` to create a new message.
 */
export const TaskSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 0);
/**
 * Describes the message lf.a2a.v1.TaskStatus.
 * Use `create(TaskStatusSchema)` to create a new message.
 */
export const TaskStatusSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 1);
/**
 * Describes the message lf.a2a.v1.Message.
 * Use `create(MessageSchema)` to create a new message.
 */
export const MessageSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 2);
/**
 * Describes the message lf.a2a.v1.Part.
 * Use `create(PartSchema)` to create a new message.
 */
export const PartSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 3);
/**
 * Describes the message lf.a2a.v1.Artifact.
 * Use `create(ArtifactSchema)` to create a new message.
 */
export const ArtifactSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 4);
/**
 * Describes the message lf.a2a.v1.TaskStatusUpdateEvent.
 * Use `create(TaskStatusUpdateEventSchema)` to create a new message.
 */
export const TaskStatusUpdateEventSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 5);
/**
 * Describes the message lf.a2a.v1.TaskArtifactUpdateEvent.
 * Use `create(TaskArtifactUpdateEventSchema)` to create a new message.
 */
export const TaskArtifactUpdateEventSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 6);
/**
 * Describes the message lf.a2a.v1.SendMessageRequest.
 * Use `create(SendMessageRequestSchema)` to create a new message.
 */
export const SendMessageRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 7);
/**
 * Describes the message lf.a2a.v1.SendMessageConfiguration.
 * Use `create(SendMessageConfigurationSchema)` to create a new message.
 */
export const SendMessageConfigurationSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 8);
/**
 * Describes the message lf.a2a.v1.SendMessageResponse.
 * Use `create(SendMessageResponseSchema)` to create a new message.
 */
export const SendMessageResponseSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 9);
/**
 * Describes the message lf.a2a.v1.StreamResponse.
 * Use `create(StreamResponseSchema)` to create a new message.
 */
export const StreamResponseSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 10);
/**
 * Describes the message lf.a2a.v1.GetTaskRequest.
 * Use `create(GetTaskRequestSchema)` to create a new message.
 */
export const GetTaskRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 11);
/**
 * Describes the message lf.a2a.v1.ListTasksRequest.
 * Use `create(ListTasksRequestSchema)` to create a new message.
 */
export const ListTasksRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 12);
/**
 * Describes the message lf.a2a.v1.ListTasksResponse.
 * Use `create(ListTasksResponseSchema)` to create a new message.
 */
export const ListTasksResponseSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 13);
/**
 * Describes the message lf.a2a.v1.CancelTaskRequest.
 * Use `create(CancelTaskRequestSchema)` to create a new message.
 */
export const CancelTaskRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 14);
/**
 * Describes the message lf.a2a.v1.SubscribeToTaskRequest.
 * Use `create(SubscribeToTaskRequestSchema)` to create a new message.
 */
export const SubscribeToTaskRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 15);
/**
 * Describes the message lf.a2a.v1.AuthenticationInfo.
 * Use `create(AuthenticationInfoSchema)` to create a new message.
 */
export const AuthenticationInfoSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 16);
/**
 * Describes the message lf.a2a.v1.AgentInterface.
 * Use `create(AgentInterfaceSchema)` to create a new message.
 */
export const AgentInterfaceSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 17);
/**
 * Describes the message lf.a2a.v1.AgentCard.
 * Use `create(AgentCardSchema)` to create a new message.
 */
export const AgentCardSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 18);
/**
 * Describes the message lf.a2a.v1.AgentProvider.
 * Use `create(AgentProviderSchema)` to create a new message.
 */
export const AgentProviderSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 19);
/**
 * Describes the message lf.a2a.v1.AgentCapabilities.
 * Use `create(AgentCapabilitiesSchema)` to create a new message.
 */
export const AgentCapabilitiesSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 20);
/**
 * Describes the message lf.a2a.v1.AgentExtension.
 * Use `create(AgentExtensionSchema)` to create a new message.
 */
export const AgentExtensionSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 21);
/**
 * Describes the message lf.a2a.v1.AgentSkill.
 * Use `create(AgentSkillSchema)` to create a new message.
 */
export const AgentSkillSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 22);
/**
 * Describes the message lf.a2a.v1.AgentCardSignature.
 * Use `create(AgentCardSignatureSchema)` to create a new message.
 */
export const AgentCardSignatureSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 23);
/**
 * Describes the message lf.a2a.v1.TaskPushNotificationConfig.
 * Use `create(TaskPushNotificationConfigSchema)` to create a new message.
 */
export const TaskPushNotificationConfigSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 24);
/**
 * Describes the message lf.a2a.v1.StringList.
 * Use `create(StringListSchema)` to create a new message.
 */
export const StringListSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 25);
/**
 * Describes the message lf.a2a.v1.SecurityRequirement.
 * Use `create(SecurityRequirementSchema)` to create a new message.
 */
export const SecurityRequirementSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 26);
/**
 * Describes the message lf.a2a.v1.SecurityScheme.
 * Use `create(SecuritySchemeSchema)` to create a new message.
 */
export const SecuritySchemeSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 27);
/**
 * Describes the message lf.a2a.v1.APIKeySecurityScheme.
 * Use `create(APIKeySecuritySchemeSchema)` to create a new message.
 */
export const APIKeySecuritySchemeSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 28);
/**
 * Describes the message lf.a2a.v1.HTTPAuthSecurityScheme.
 * Use `create(HTTPAuthSecuritySchemeSchema)` to create a new message.
 */
export const HTTPAuthSecuritySchemeSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 29);
/**
 * Describes the message lf.a2a.v1.OAuth2SecurityScheme.
 * Use `create(OAuth2SecuritySchemeSchema)` to create a new message.
 */
export const OAuth2SecuritySchemeSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 30);
/**
 * Describes the message lf.a2a.v1.OpenIdConnectSecurityScheme.
 * Use `create(OpenIdConnectSecuritySchemeSchema)` to create a new message.
 */
export const OpenIdConnectSecuritySchemeSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 31);
/**
 * Describes the message lf.a2a.v1.MutualTlsSecurityScheme.
 * Use `create(MutualTlsSecuritySchemeSchema)` to create a new message.
 */
export const MutualTlsSecuritySchemeSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 32);
/**
 * Describes the message lf.a2a.v1.OAuthFlows.
 * Use `create(OAuthFlowsSchema)` to create a new message.
 */
export const OAuthFlowsSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 33);
/**
 * Describes the message lf.a2a.v1.AuthorizationCodeOAuthFlow.
 * Use `create(AuthorizationCodeOAuthFlowSchema)` to create a new message.
 */
export const AuthorizationCodeOAuthFlowSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 34);
/**
 * Describes the message lf.a2a.v1.ClientCredentialsOAuthFlow.
 * Use `create(ClientCredentialsOAuthFlowSchema)` to create a new message.
 */
export const ClientCredentialsOAuthFlowSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 35);
/**
 * Describes the message lf.a2a.v1.ImplicitOAuthFlow.
 * Use `create(ImplicitOAuthFlowSchema)` to create a new message.
 */
export const ImplicitOAuthFlowSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 36);
/**
 * Describes the message lf.a2a.v1.PasswordOAuthFlow.
 * Use `create(PasswordOAuthFlowSchema)` to create a new message.
 */
export const PasswordOAuthFlowSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 37);
/**
 * Describes the message lf.a2a.v1.DeviceCodeOAuthFlow.
 * Use `create(DeviceCodeOAuthFlowSchema)` to create a new message.
 */
export const DeviceCodeOAuthFlowSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 38);
/**
 * Describes the message lf.a2a.v1.GetTaskPushNotificationConfigRequest.
 * Use `create(GetTaskPushNotificationConfigRequestSchema)` to create a new message.
 */
export const GetTaskPushNotificationConfigRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 39);
/**
 * Describes the message lf.a2a.v1.DeleteTaskPushNotificationConfigRequest.
 * Use `create(DeleteTaskPushNotificationConfigRequestSchema)` to create a new message.
 */
export const DeleteTaskPushNotificationConfigRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 40);
/**
 * Describes the message lf.a2a.v1.ListTaskPushNotificationConfigsRequest.
 * Use `create(ListTaskPushNotificationConfigsRequestSchema)` to create a new message.
 */
export const ListTaskPushNotificationConfigsRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 41);
/**
 * Describes the message lf.a2a.v1.GetExtendedAgentCardRequest.
 * Use `create(GetExtendedAgentCardRequestSchema)` to create a new message.
 */
export const GetExtendedAgentCardRequestSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 42);
/**
 * Describes the message lf.a2a.v1.ListTaskPushNotificationConfigsResponse.
 * Use `create(ListTaskPushNotificationConfigsResponseSchema)` to create a new message.
 */
export const ListTaskPushNotificationConfigsResponseSchema = /*@__PURE__*/ messageDesc(file_lf_a2a_v1_a2a, 43);
/**
 * The life of a task. COMPLETED, FAILED, REJECTED and the canceled state are final. INPUT_REQUIRED
 * and AUTH_REQUIRED wait for the client. No other order is promised: a short task may go from
 * SUBMITTED straight to COMPLETED.
 *
 * @generated from enum lf.a2a.v1.TaskState
 */
export var TaskState;
(function (TaskState) {
    /**
     * No state given. As a filter: any state. A server never stores it.
     *
     * @generated from enum value: TASK_STATE_UNSPECIFIED = 0;
     */
    TaskState[TaskState["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * Accepted and stored; the agent has not said anything yet.
     *
     * @generated from enum value: TASK_STATE_SUBMITTED = 1;
     */
    TaskState[TaskState["SUBMITTED"] = 1] = "SUBMITTED";
    /**
     * The agent is at it. Each progress report repeats this state.
     *
     * @generated from enum value: TASK_STATE_WORKING = 2;
     */
    TaskState[TaskState["WORKING"] = 2] = "WORKING";
    /**
     * Done, successfully. Final.
     *
     * @generated from enum value: TASK_STATE_COMPLETED = 3;
     */
    TaskState[TaskState["COMPLETED"] = 3] = "COMPLETED";
    /**
     * Ended by an error, or by the loss of the process that ran it; the status message says which.
     * Final.
     *
     * @generated from enum value: TASK_STATE_FAILED = 4;
     */
    TaskState[TaskState["FAILED"] = 4] = "FAILED";
    /**
     * Stopped at the wish of the client or the operator. Final.
     *
     * @generated from enum value: TASK_STATE_CANCELED = 5;
     */
    TaskState[TaskState["CANCELED"] = 5] = "CANCELED";
    /**
     * The agent's turn is over until the client answers with another message to the same task.
     *
     * @generated from enum value: TASK_STATE_INPUT_REQUIRED = 6;
     */
    TaskState[TaskState["INPUT_REQUIRED"] = 6] = "INPUT_REQUIRED";
    /**
     * The agent declined the work. Final.
     *
     * @generated from enum value: TASK_STATE_REJECTED = 7;
     */
    TaskState[TaskState["REJECTED"] = 7] = "REJECTED";
    /**
     * The agent cannot go on until someone has authorized it; the status message says how.
     *
     * @generated from enum value: TASK_STATE_AUTH_REQUIRED = 8;
     */
    TaskState[TaskState["AUTH_REQUIRED"] = 8] = "AUTH_REQUIRED";
})(TaskState || (TaskState = {}));
/**
 * Describes the enum lf.a2a.v1.TaskState.
 */
export const TaskStateSchema = /*@__PURE__*/ enumDesc(file_lf_a2a_v1_a2a, 0);
/**
 * The two sides of a conversation.
 *
 * @generated from enum lf.a2a.v1.Role
 */
export var Role;
(function (Role) {
    /**
     * No role given. Refused in a request.
     *
     * @generated from enum value: ROLE_UNSPECIFIED = 0;
     */
    Role[Role["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * The client, or the person or program behind it.
     *
     * @generated from enum value: ROLE_USER = 1;
     */
    Role[Role["USER"] = 1] = "USER";
    /**
     * The agent.
     *
     * @generated from enum value: ROLE_AGENT = 2;
     */
    Role[Role["AGENT"] = 2] = "AGENT";
})(Role || (Role = {}));
/**
 * Describes the enum lf.a2a.v1.Role.
 */
export const RoleSchema = /*@__PURE__*/ enumDesc(file_lf_a2a_v1_a2a, 1);
/**
 * Sends messages to an agent and follows the tasks that come of them.
 *
 * Every method is also reachable over HTTP. The first rule of each is the published one, the
 * second the same call for one agent of several (`/{tenant}/...`). The last is the form in which
 * the agent is a Google Cloud resource name; a request there is taken as 1.0 when its
 * `A2A-Version` header says so, and as `a2a.v1` otherwise.
 *
 * @generated from service lf.a2a.v1.A2AService
 */
export const A2AService = /*@__PURE__*/ serviceDesc(file_lf_a2a_v1_a2a, 0);
