// Questions to our own routes. The answer to a question that was asked before comes again only if it has changed.
const versions = new Map();

export async function ask(route, parameters = {}, { signal, fresh = false } = {}) {
  const address = new URL(route, document.baseURI);
  for (const [name, value] of Object.entries(parameters)) address.searchParams.set(name, value);
  const key = address.href;
  const had = versions.get(route);
  const headers = !fresh && had?.key === key ? { "If-None-Match": had.version } : {};
  const response = await fetch(address, { headers, signal, cache: "no-store" });
  if (response.status === 304) return { unchanged: true };
  const content = await response.json().catch(() => ({ error: `TensorBoard answered ${response.status}.` }));
  if (!response.ok) return { error: content.error || `TensorBoard answered ${response.status}.` };
  const version = response.headers.get("ETag");
  if (version) versions.set(route, { key, version });
  return content;
}
