// Puts the texts of the chosen thing in the places of the one that is shown; all texts are in the page already.
"use strict";
for (const box of document.querySelectorAll(".chooser")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const [outer, inner] = box.querySelectorAll("select");
  const places = box.querySelectorAll(".chosen :is(p, td, thead th + th, [data-slot])");
  const first = [];
  data.members.reduce((sum, names, i) => { first[i] = sum; return sum + names.length; }, 0);
  const show = () => {
    const texts = data.slots[first[outer.selectedIndex] + inner.selectedIndex];
    places.forEach((place, i) => {
      if (place.dataset.slot) place.setAttribute(place.dataset.slot, texts[i]);
      else place.textContent = texts[i];
    });
    for (const cell of box.querySelectorAll(".chosen td[data-label]")) {
      const heads = cell.closest("table").querySelectorAll("thead th");
      cell.dataset.label = heads[cell.cellIndex].textContent;
    }
  };
  const choose = () => {
    const wanted = inner.value;
    inner.replaceChildren(...data.members[outer.selectedIndex].map((name) => new Option(name)));
    if (data.members[outer.selectedIndex].includes(wanted)) inner.value = wanted;
    show();
  };
  outer.addEventListener("change", choose);
  inner.addEventListener("change", show);
  choose();
  box.querySelector(".choices").hidden = false;
}
// The row of a table at which a slider stands is shown beside the one that was found.
for (const box of document.querySelectorAll(".slider")) {
  const input = box.querySelector("input");
  const rows = box.querySelectorAll("details tbody tr");
  const places = box.querySelectorAll(".now tbody td:last-child");
  const show = () => {
    const cells = rows[input.value].children;
    places.forEach((place, i) => { place.textContent = cells[i].textContent; });
    input.setAttribute("aria-valuetext", cells[0].textContent);
  };
  input.addEventListener("input", show);
  show();
  box.querySelector(".choices").hidden = false;
}
