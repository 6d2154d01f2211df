"use strict";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function command(path, method, row) {
  const url = location.origin + location.pathname.replace(/docs$/, path.slice(1));
  if (method === "get") return `curl ${url}`;
  const body = JSON.stringify(path === "/rank" ? { rows: [row, row], k: 1 } : row).replaceAll("'", "'\\''");
  return `curl ${url} -H 'Content-Type: application/json' \\\n  -d '${body}'`;
}

function describe(path, method, operation, row) {
  const title = make("h2", {}, make("span", { class: "method" }, method.toUpperCase()), path);
  const section = make("section", {}, title, make("p", {}, operation.summary));
  const facts = make("dl");
  for (const each of operation.parameters ?? []) {
    facts.append(make("dt", {}, `?${each.name}=`), make("dd", {}, each.description ?? ""));
  }
  if (operation.requestBody) {
    facts.append(make("dt", {}, "Content-Type"), make("dd", {}, Object.keys(operation.requestBody.content).join(", ")));
  }
  for (const [status, response] of Object.entries(operation.responses)) {
    if (status !== "200") facts.append(make("dt", {}, status), make("dd", {}, response.description));
  }
  section.append(facts, make("pre", {}, command(path, method, row)));
  return section;
}

async function start() {
  const document_ = await (await fetch("openapi.json")).json();
  const examples = document_.paths["/predict"].post.requestBody.content["application/json"].examples;
  const row = Object.values(examples)[0].value;
  const sections = Object.entries(document_.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => describe(path, method, operation, row)));
  document.getElementById("operations").replaceChildren(...sections);
}

start();
